#include "transport/ipc/native_stream.h"

#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include "transport/common/starting_stream.h"

namespace shardway {
namespace {

// A template, since torch 2.11 may lack the method.
template <class AnyStream>
cuda::Stream handle_of(const AnyStream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return stream.native_handle();
  } else {
    TORCH_CHECK(false, "this torch does not tell the driver's stream: use a later one");
  }
}

}  // namespace

cuda::Stream native_stream(c10::Device device) { return handle_of(current_stream(device)); }

}  // namespace shardway
