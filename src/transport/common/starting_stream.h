// The stream on which a transfer of device tensors was started.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <initializer_list>

namespace shardway {

c10::Stream current_stream(c10::Device device);

class StartingStream {
 public:
  explicit StartingStream(const at::Tensor& t);  // the current stream of the tensor's device

  // If the current stream is another one by now, lets it wait for what that stream has to do.
  void follow() const;

  // Whether that stream has done all that it was given until now.
  bool is_idle() const { return stream_.query(); }

  // If the current stream is another one by now, keeps the memory of these tensors from being reused before
  // that stream is done with them. Skips undefined tensors.
  void lend(std::initializer_list<at::Tensor> tensors) const;

 private:
  c10::Stream stream_;
};

}  // namespace shardway
