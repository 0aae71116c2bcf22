// The c10d backend named "shardway": ranks of one host that share memory.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "backend/calls.h"
#include "c10d_calls/table.h"
#include "transport/common/home_process.h"
#include "transport/group/process_group.h"
#include "transport/shm/shm_engine.h"

namespace shardway::backend {

// Calls with asyncOp = false run on the caller's thread and return finished work; the others are left to a
// thread of the group. Calls of CUDA tensors all run on the caller's thread, which queues them on its stream;
// the ranks have to share a GPU. All run in the order in which they are made.
class [[gnu::visibility("default")]] Backend : public CallsBackend, public SharesMemory {
 public:
  // Collective over the ranks that share the store, unless they have met already and give their engine.
  // Throws c10::DistBackendError if they do not share a host.
  Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<Options> options,
          std::shared_ptr<ShmEngine> engine = nullptr);
  ~Backend() override;

  std::shared_ptr<ShmEngine> shm_engine() override;

  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

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
  // Returns the engine. Throws c10::DistBackendError if the group was destroyed, or is a parent's.
  std::shared_ptr<ShmEngine> engine(const char* name);
  WorkPtr launch(const CallOptions& options, const Tensors& inputs, const Tensors& outputs,
                 std::function<void(Collectives&)> call) override;
  void run_on_gpu(const CallOptions& options, const std::shared_ptr<ShmEngine>& used,
                  const std::function<void(Collectives&)>& call);
  WorkPtr kept(WorkPtr work);
  WorkPtr receive(Tensors& tensors, std::optional<int64_t> from, int tag);
  void check_message(const char* name, const Tensors& tensors, std::optional<int64_t> peer) const;
  std::vector<int64_t> absentees(shm::Mailbox& mailbox, int64_t tag, std::chrono::milliseconds timeout,
                                 bool wait_all_ranks);
  void report_to_first(shm::Mailbox& mailbox, int64_t tag, std::chrono::milliseconds timeout);

  c10::intrusive_ptr<c10d::Store> store_;
  HomeProcess home_;
  std::mutex mutex_;
  std::shared_ptr<ShmEngine> engine_;  // null once the group is destroyed
  std::shared_ptr<Transport> on_gpu_;  // moves CUDA tensors, once there was one
  std::shared_ptr<CallQueue> futures_ = std::make_shared<CallQueue>();
  std::shared_ptr<Table> table_;
  Table gpu_table_;
  int64_t shrinks_ = 0;
  int64_t monitored_barriers_ = 0;
  bool is_coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

}  // namespace shardway::backend
