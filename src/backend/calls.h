// c10d's names for the collectives, for ranks of one host and of several.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "backend/identity.h"
#include "c10d_calls/collectives.h"
#include "shardway/group.h"

namespace shardway::backend {

inline constexpr const char* kName = "shardway";

struct Options : c10d::Backend::Options {
  explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options(kName, timeout) {}
};

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// How a call is made, taken from c10d's options.
struct CallOptions {
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

// A c10d backend that makes its collectives by a Collectives. Later versions of c10d rename _allgather_base
// and the like; within the backend only this class has methods of those names.
class [[gnu::visibility("default")]] CallsBackend : public c10d::Backend {
 public:
  const std::string getBackendName() const override { return kName; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;

  void setSequenceNumberForGroup() override { sequence_number_ = 0; }
  uint64_t getSequenceNumberForGroup() override { return sequence_number_; }

 protected:
  CallsBackend(int rank, int size, c10::intrusive_ptr<Options> options);

  virtual WorkPtr launch(const CallOptions& options, const Tensors& inputs, const Tensors& outputs,
                         std::function<void(Collectives&)> call) = 0;

  // The backend that makes the reductions by this op; null if it is this one.
  virtual c10d::Backend* other_for(const c10d::ReduceOp& /*op*/) { return nullptr; }

  c10::intrusive_ptr<Options> options_;
  std::shared_ptr<const Identity> identity_;
  std::atomic<uint64_t> sequence_number_{0};
};

}  // namespace shardway::backend
