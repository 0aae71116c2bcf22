// How a call is made, taken from c10d's options.
#pragma once

#include <chrono>
#include <string_view>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "backend/backend.h"

namespace shardway::backend {

struct Backend::CallOptions {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* title = "";  // as profilers show it: "shardway:" and the name of torch's function
  bool is_async = true;
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  std::vector<int64_t> input_splits = {};  // of an all-to-all, as given
  std::vector<int64_t> output_splits = {};

  const char* name() const { return title + sizeof("shardway:") - 1; }

  // The name that errors use: that of torch.distributed's function.
  const char* words() const {
    if (std::string_view(name()) == "_all_gather_base") return "all_gather_into_tensor";
    if (std::string_view(name()) == "_reduce_scatter_base") return "reduce_scatter_tensor";
    return name();
  }

  template <class TorchOptions>
  static CallOptions of(c10d::OpType type, const char* title, const TorchOptions& options) {
    return {.type = type, .title = title, .is_async = options.asyncOp, .timeout = options.timeout};
  }
};

}  // namespace shardway::backend
