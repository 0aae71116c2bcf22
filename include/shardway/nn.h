// The collectives as modules.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <optional>

#include "shardway/collectives.h"

namespace shardway::nn {

// all_gather_v as a module. It holds no parameters.
class AllGatherImpl : public torch::nn::Module {
 public:
  explicit AllGatherImpl(AllGatherOptions options = {}) : options_(std::move(options)) {}

  // With every rank's size known there is no exchange.
  Ragged forward(const at::Tensor& x, std::optional<Sizes> sizes = std::nullopt) {
    AllGatherOptions options = options_;
    if (sizes) options.sizes = std::move(sizes);
    return all_gather_v(x, options);
  }

 private:
  AllGatherOptions options_;
};

TORCH_MODULE(AllGather);

}  // namespace shardway::nn
