// The backend "shardway" for ranks of several hosts.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "backend/calls.h"
#include "transport/c10d/backend_mail.h"
#include "transport/common/call_queue.h"
#include "transport/group/hosts_transport.h"
#include "transport/group/process_group.h"

namespace shardway::backend {

// Collectives of dense CPU tensors are routes in two levels: memory inside a host, gloo between hosts.
// Addends are combined host by host, as in shardway's own calls. Messages, barriers, the bitwise and sparse
// reductions, gather and scatter are gloo's own. The ranks do not compare their calls before they move.
class HostsBackend : public CallsBackend, public SpansHosts {
 public:
  HostsBackend(c10::intrusive_ptr<Options> options, c10::intrusive_ptr<c10d::Backend> gloo,
               const shm::HostGroups& groups);
  ~HostsBackend() override;

  const HostsTransport& hosts_transport() override { return hosts_; }

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

  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 private:
  WorkPtr launch(const CallOptions& options, const Tensors& inputs, const Tensors& outputs,
                 std::function<void(Collectives&)> call) override;
  c10d::Backend* other_for(const c10d::ReduceOp& op) override;

  c10::intrusive_ptr<c10d::Backend> gloo_;
  std::shared_ptr<CallQueue> queue_ = std::make_shared<CallQueue>();
  MailRoom room_ = make_mail_room();
  HostsTransport hosts_;
  std::atomic<bool> is_destroyed_{false};
};

// `prefix` is for the engine's keys in the store.
using MakeEngine = std::function<c10::intrusive_ptr<c10d::Backend>(const std::string& prefix)>;

// Collective over the ranks that share the store: the backend of their one host, or of their several hosts.
// Only then `make_gloo` is called, which makes the engine between hosts.
[[gnu::visibility("default")]] c10::intrusive_ptr<c10d::Backend> make_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    const c10::intrusive_ptr<Options>& options, const MakeEngine& make_gloo);

}  // namespace shardway::backend
