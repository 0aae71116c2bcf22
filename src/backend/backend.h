// The c10d backend named "shardway": ranks of one host that share memory.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "backend/identity.h"
#include "c10d_calls/collectives.h"
#include "c10d_calls/table.h"
#include "transport/common/home_process.h"
#include "transport/group/process_group.h"
#include "transport/shm/shm_engine.h"

namespace shardway::backend {

inline constexpr const char* kName = "shardway";

struct Options : c10d::Backend::Options {
  explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options(kName, timeout) {}
};

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Calls with asyncOp = false run on the caller's thread and return finished work; the others are left to a
// thread of the group. Calls of CUDA tensors all run on the caller's thread, which queues them on its stream;
// the ranks have to share a GPU. All run in the order in which they are made. Later versions of c10d rename
// _allgather_base and the like; within the backend only this class has methods of those names.
class [[gnu::visibility("default")]] Backend : public c10d::Backend, public SharesMemory {
 public:
  // Collective over the ranks that share the store, unless they have met already and give their engine.
  // Throws c10::DistBackendError if they do not share a host.
  Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<Options> options,
          std::shared_ptr<ShmEngine> engine = nullptr);
  ~Backend() override;

  const std::string getBackendName() const override { return kName; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  std::shared_ptr<ShmEngine> shm_engine() override;

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
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  void setSequenceNumberForGroup() override { sequence_number_ = 0; }
  uint64_t getSequenceNumberForGroup() override { return sequence_number_; }

  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts) override;
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& opts,
                                          const int& rank, const int& size) override;
  bool supportsShrinking() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> shrink(
      const std::vector<int64_t>& ranks_to_exclude, int shrink_flags,
      const c10::intrusive_ptr<c10d::Backend::Options>& opts_override) override;

  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;  // NOLINT(google-runtime-int)

 private:
  struct CallOptions;

  // Returns the engine. Throws c10::DistBackendError if the group was destroyed, or is a parent's.
  std::shared_ptr<ShmEngine> engine(const char* name);
  WorkPtr launch(const CallOptions& options, const Tensors& inputs, const Tensors& outputs,
                 std::function<void(Collectives&)> call);
  void run_on_gpu(const CallOptions& options, const std::shared_ptr<ShmEngine>& used,
                  const std::function<void(Collectives&)>& call);
  WorkPtr kept(WorkPtr work);
  WorkPtr receive(Tensors& tensors, std::optional<int64_t> from, int tag);
  void check_message(const char* name, const Tensors& tensors, std::optional<int64_t> peer) const;
  std::vector<int64_t> absentees(shm::Mailbox& mailbox, int64_t tag, std::chrono::milliseconds timeout,
                                 bool wait_all_ranks);
  void report_to_first(shm::Mailbox& mailbox, int64_t tag, std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<Options> options_;
  HomeProcess home_;
  std::mutex mutex_;
  std::shared_ptr<ShmEngine> engine_;  // null once the group is destroyed
  std::shared_ptr<Transport> on_gpu_;  // moves CUDA tensors, once there was one
  std::shared_ptr<CallQueue> futures_ = std::make_shared<CallQueue>();
  std::shared_ptr<Table> table_;
  Table gpu_table_;
  std::shared_ptr<const Identity> identity_;
  std::atomic<uint64_t> sequence_number_{0};
  int64_t shrinks_ = 0;
  int64_t monitored_barriers_ = 0;
  bool is_coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

}  // namespace shardway::backend
