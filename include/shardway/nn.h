// The collectives as modules, which hold no parameters.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <optional>
#include <utility>

#include "shardway/collectives.h"

namespace shardway {
namespace [[gnu::visibility("default")]] nn {

// Returns the options with the group that is meant when a module is called. The group may have been joined
// after the module was made.
template <class Options>
Options at_call(Options options) {
  options.group = options.group.now();
  return options;
}

// all_gather_v. If every rank's size is given, no exchange is needed.
class AllGatherImpl : public torch::nn::Module {
 public:
  explicit AllGatherImpl(AllGatherOptions options = {}) : options_(std::move(options)) {}

  Ragged forward(const at::Tensor& x, std::optional<Sizes> sizes = std::nullopt) {
    AllGatherOptions options = at_call(options_);
    if (sizes) options.sizes = std::move(sizes);
    return all_gather_v(x, options);
  }

 private:
  AllGatherOptions options_;
};

// reduce_scatter_v. Without sizes the tensor is split as torch.chunk splits.
class ReduceScatterImpl : public torch::nn::Module {
 public:
  explicit ReduceScatterImpl(ReduceScatterOptions options = {}) : options_(std::move(options)) {}

  at::Tensor forward(const at::Tensor& x, std::optional<Sizes> sizes = std::nullopt) {
    ReduceScatterOptions options = at_call(options_);
    if (sizes) options.sizes = std::move(sizes);
    return reduce_scatter_v(x, options);
  }

 private:
  ReduceScatterOptions options_;
};

// all_to_all_v. If the sizes that every rank sends here are given, no exchange is needed.
class AllToAllImpl : public torch::nn::Module {
 public:
  explicit AllToAllImpl(AllToAllOptions options = {}) : options_(std::move(options)) {}

  Ragged forward(const at::Tensor& x, const Sizes& send_sizes,
                 std::optional<Sizes> recv_sizes = std::nullopt) {
    AllToAllOptions options = at_call(options_);
    if (recv_sizes) options.recv_sizes = std::move(recv_sizes);
    return all_to_all_v(x, send_sizes, options);
  }

 private:
  AllToAllOptions options_;
};

// all_reduce.
class AllReduceImpl : public torch::nn::Module {
 public:
  explicit AllReduceImpl(AllReduceOptions options = {}) : options_(std::move(options)) {}

  at::Tensor forward(const at::Tensor& x) { return all_reduce(x, at_call(options_)); }

 private:
  AllReduceOptions options_;
};

// broadcast.
class BroadcastImpl : public torch::nn::Module {
 public:
  explicit BroadcastImpl(BroadcastOptions options = {}) : options_(std::move(options)) {}

  at::Tensor forward(const at::Tensor& x) { return broadcast(x, at_call(options_)); }

 private:
  BroadcastOptions options_;
};

// gather_v. If every rank's size is given, no exchange is needed.
class GatherImpl : public torch::nn::Module {
 public:
  explicit GatherImpl(GatherOptions options = {}) : options_(std::move(options)) {}

  Ragged forward(const at::Tensor& x, std::optional<Sizes> sizes = std::nullopt) {
    GatherOptions options = at_call(options_);
    if (sizes) options.sizes = std::move(sizes);
    return gather_v(x, options);
  }

 private:
  GatherOptions options_;
};

// scatter_v. Without sizes the tensor is split as torch.chunk splits.
class ScatterImpl : public torch::nn::Module {
 public:
  explicit ScatterImpl(ScatterOptions options = {}) : options_(std::move(options)) {}

  at::Tensor forward(const std::optional<at::Tensor>& x, std::optional<Sizes> sizes = std::nullopt) {
    ScatterOptions options = at_call(options_);
    if (sizes) options.sizes = std::move(sizes);
    return scatter_v(x, options);
  }

 private:
  ScatterOptions options_;
};

TORCH_MODULE(AllGather);
TORCH_MODULE(ReduceScatter);
TORCH_MODULE(AllToAll);
TORCH_MODULE(AllReduce);
TORCH_MODULE(Broadcast);
TORCH_MODULE(Gather);
TORCH_MODULE(Scatter);

}  // namespace nn
}  // namespace shardway
