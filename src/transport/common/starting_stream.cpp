#include "transport/common/starting_stream.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace shardway {

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

StartingStream::StartingStream(const at::Tensor& t) : stream_(current_stream(t.device())) {}

void StartingStream::follow() const {
  const c10::Stream now = current_stream(stream_.device());
  if (now == stream_) return;
  c10::Event event(stream_.device_type());
  event.record(stream_);
  event.block(now);
}

void StartingStream::lend(std::initializer_list<at::Tensor> tensors) const {
  const c10::Stream now = current_stream(stream_.device());
  if (now == stream_) return;
  for (const at::Tensor& t : tensors) {
    if (t.defined()) t.record_stream(now);
  }
}

}  // namespace shardway
