#include "transport/common/torch_kinds.h"

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "shardway/route.h"

namespace shardway {
namespace {

template <class Kind>
struct Numbered {
  Kind kind;
  int number;
};

template <class Kind, size_t count>
constexpr bool are_torchs(const std::array<Numbered<Kind>, count>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(),
                     [](const auto& one) { return static_cast<int>(one.kind) == one.number; });
}

// The numbers of dtypes and devices between ranks, whose torches may differ. So far every torch counts them
// so, and they are sent as they are. For a torch that counts otherwise they must be translated.
constexpr auto kDtypes = std::to_array<Numbered<at::ScalarType>>({
    {at::kByte, 0},
    {at::kChar, 1},
    {at::kShort, 2},
    {at::kInt, 3},
    {at::kLong, 4},
    {at::kHalf, 5},
    {at::kFloat, 6},
    {at::kDouble, 7},
    {at::kComplexHalf, 8},
    {at::kComplexFloat, 9},
    {at::kComplexDouble, 10},
    {at::kBool, 11},
    {at::kBFloat16, 15},
    {at::kFloat8_e5m2, 23},
    {at::kFloat8_e4m3fn, 24},
    {at::kFloat8_e5m2fnuz, 25},
    {at::kFloat8_e4m3fnuz, 26},
    {at::kUInt16, 27},
    {at::kUInt32, 28},
    {at::kUInt64, 29},
    {at::kFloat8_e8m0fnu, 44},
});
constexpr auto kDevices = std::to_array<Numbered<c10::DeviceType>>({
    {c10::kCPU, 0},
    {c10::kCUDA, 1},
    {c10::kMeta, 14},
    {c10::kPrivateUse1, 20},
});
static_assert(are_torchs(kDtypes) && are_torchs(kDevices));

}  // namespace

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
