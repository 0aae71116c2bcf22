// A call as torch's profiler shows it: "shardway::all_gather_v", with the shapes of its tensors and its
// sizes. Its gradient is "shardway::all_gather_v_backward".
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "shardway/collectives.h"

namespace at {
struct RecordFunction;
}

namespace shardway {

// Lives as long as the call. If no profiler runs, it only looks at one pointer.
class Recording {
 public:
  enum class Pass : uint8_t { forward, backward };

  Recording(const char* op, const at::Tensor& x, Pass pass = Pass::forward)
      : Recording(op, at::TensorList(x), nullptr, pass) {}
  Recording(const char* op, const at::Tensor& x, const Sizes& sizes)
      : Recording(op, at::TensorList(x), &sizes, Pass::forward) {}
  Recording(const char* op, const at::Tensor& x, const std::optional<Sizes>& sizes)
      : Recording(op, at::TensorList(x), sizes ? &*sizes : nullptr, Pass::forward) {}
  Recording(const char* op, at::TensorList xs, Pass pass = Pass::forward)
      : Recording(op, xs, nullptr, pass) {}

 private:
  Recording(const char* op, at::TensorList xs, const Sizes* sizes, Pass pass);

  struct End {
    void operator()(at::RecordFunction* event) const;
  };
  std::unique_ptr<at::RecordFunction, End> event_;  // none unless a profiler runs
};

}  // namespace shardway
