#include "transport/common/torch_kinds.h"

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <string_view>

#include "shardway/route.h"

namespace shardway {

const wire::Kinds& kinds_of_torch() {
  static_assert(wire::kOpNames[static_cast<size_t>(Op::product)] == std::string_view("product"));
  static constexpr wire::Kinds kKinds{
      .bytes_of_dtype = [](int64_t dtype) -> int64_t {
        if (dtype < 0 || dtype >= static_cast<int64_t>(at::ScalarType::Undefined)) return 0;
        return static_cast<int64_t>(c10::scalarTypeToTypeMeta(static_cast<at::ScalarType>(dtype)).itemsize());
      },
      .devices = c10::COMPILE_TIME_MAX_DEVICE_TYPES,
      .dtype_name =
          [](int64_t dtype) {
            return std::string(c10::getDtypeNames(static_cast<at::ScalarType>(dtype)).first);
          },
      .device_name =
          [](int64_t device) {
            return c10::DeviceTypeName(static_cast<c10::DeviceType>(device), /*lower_case=*/true);
          }};
  return kKinds;
}

}  // namespace shardway
