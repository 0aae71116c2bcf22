// The backend "shardway" for ranks of several hosts.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "backend/backend.h"
#include "backend/identity.h"
#include "c10d_calls/call_terms.h"
#include "transport/c10d/backend_mail.h"
#include "transport/common/call_queue.h"
#include "transport/common/transport.h"
#include "transport/group/hosts_transport.h"
#include "transport/group/process_group.h"

namespace shardway::backend {

// Collectives of dense CPU tensors are routes in two levels: memory inside a host, gloo between hosts.
// Addends are combined host by host, as in shardway's own calls. Messages, barriers, the bitwise and sparse
// reductions, gather and scatter are gloo's own. The ranks do not compare their calls before they move.
class HostsBackend : public c10d::Backend, public SpansHosts {
 public:
  HostsBackend(c10::intrusive_ptr<Options> options, c10::intrusive_ptr<c10d::Backend> gloo,
               const shm::HostGroups& groups);
  ~HostsBackend() override;

  const std::string getBackendName() const override { return kName; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  const HostsTransport& hosts_transport() override { return hosts_; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;

  // gloo's own.
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  void setSequenceNumberForGroup() override { sequence_number_ = 0; }
  uint64_t getSequenceNumberForGroup() override { return sequence_number_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 private:
  struct Call {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* title = "";  // as profilers show it: "shardway:" and the name of torch's function
    bool is_async = true;
  };

  template <class Says, class... Arguments>
  Terms checked(const char* name, Says says, const Arguments&... arguments) const;
  WorkPtr launch(const Call& call, const Tensors& inputs, const Tensors& outputs,
                 std::function<void(Transport&)> body);

  c10::intrusive_ptr<Options> options_;
  c10::intrusive_ptr<c10d::Backend> gloo_;
  std::shared_ptr<CallQueue> queue_ = std::make_shared<CallQueue>();
  MailRoom room_ = make_mail_room();
  HostsTransport hosts_;
  std::atomic<bool> is_destroyed_{false};
  std::shared_ptr<const Identity> identity_;
  std::atomic<uint64_t> sequence_number_{0};
};

// `prefix` is for the engine's keys in the store.
using MakeEngine = std::function<c10::intrusive_ptr<c10d::Backend>(const std::string& prefix)>;

// Collective over the ranks that share the store: the backend of their one host, or of their several hosts.
// Only then `make_gloo` is called, which makes the engine between hosts.
[[gnu::visibility("default")]] c10::intrusive_ptr<c10d::Backend> make_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    const c10::intrusive_ptr<Options>& options, const MakeEngine& make_gloo);

}  // namespace shardway::backend
