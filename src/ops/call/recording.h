// A call as torch's profiler shows it: "shardway::all_gather_v", with the shapes of its tensors and its
// sizes. Its gradient is "shardway::all_gather_v_backward".
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <optional>

#include "shardway/collectives.h"

namespace shardway {

// Lives as long as the call. If no profiler runs, it only looks at one pointer.
class Recording {
 public:
  enum class Pass : uint8_t { forward, backward };

  Recording(const char* op, const at::Tensor& x, Pass pass = Pass::forward) {
    if (C10_UNLIKELY(guard_.isActive())) begin(op, at::TensorList(x), nullptr, pass);
  }
  Recording(const char* op, const at::Tensor& x, const Sizes& sizes) {
    if (C10_UNLIKELY(guard_.isActive())) begin(op, at::TensorList(x), &sizes, Pass::forward);
  }
  Recording(const char* op, const at::Tensor& x, const std::optional<Sizes>& sizes) {
    if (C10_UNLIKELY(guard_.isActive()))
      begin(op, at::TensorList(x), sizes ? &*sizes : nullptr, Pass::forward);
  }
  Recording(const char* op, at::TensorList xs, Pass pass = Pass::forward) {
    if (C10_UNLIKELY(guard_.isActive())) begin(op, xs, nullptr, pass);
  }

 private:
  void begin(const char* op, at::TensorList xs, const Sizes* sizes, Pass pass);

  at::RecordFunction guard_{at::RecordScope::FUNCTION};
};

}  // namespace shardway
