#include "hosts_backend/hosts_backend.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "backend/meeting.h"
#include "backend/run_or_post.h"
#include "c10d_calls/memory.h"
#include "c10d_calls/routed.h"

namespace shardway::backend {
namespace {

using c10d::OpType;
}  // namespace

HostsBackend::HostsBackend(c10::intrusive_ptr<Options> options, c10::intrusive_ptr<c10d::Backend> gloo,
                           const shm::HostGroups& groups)
    : c10d::Backend(gloo->getRank(), gloo->getSize()),
      options_(std::move(options)),
      gloo_(std::move(gloo)),
      hosts_(make_hosts_transport(groups, make_mail_office(gloo_, room_, hosts_in_words(groups)), queue_,
                                  options_->timeout)),
      identity_(std::make_shared<Identity>(options_->group_name, options_->global_ranks_in_group)) {
  init();
}

HostsBackend::~HostsBackend() { room_.lifelines->leave(); }

// What this rank would say of a call, checked as on one host; nobody is told.
template <class Says, class... Arguments>
Terms HostsBackend::checked(const char* name, Says says, const Arguments&... arguments) const {
  Terms said;
  identity_->explain([&] {
    try {
      said = says({.rank = rank_, .size = size_}, arguments...);
    } catch (const c10::ValueError& error) {
      TORCH_CHECK_VALUE(false, name, ": ", error.what_without_backtrace(), " (rank ", rank_, ")");
    }
  });
  return said;
}

// The call keeps what it needs, because the thread may run it after the backend is gone.
WorkPtr HostsBackend::launch(const Call& call, const Tensors& inputs, const Tensors& outputs,
                             std::function<void(Transport&)> body) {
  const char* name = call.title + sizeof("shardway:") - 1;
  TORCH_CHECK_WITH(DistBackendError, !is_destroyed_, name, ": the group was destroyed (rank ", rank_, ")");
  auto work = c10::make_intrusive<CallWork>(rank_, call.type, call.title, identity_, inputs, outputs,
                                            ++sequence_number_);
  auto run = [transport = hosts_.transport, identity = identity_, body = std::move(body)] {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    identity->explain([&] { body(*transport); });
  };
  // A call made by a callback of a future runs at once, because the callback may wait for it.
  run_or_post(work, !call.is_async || queue_->is_own_thread(), std::move(run),
              [this](auto later) { queue_->post(std::move(later)); });
  return work;
}

WorkPtr HostsBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const at::Tensor t = only("broadcast", tensors);
  checked("broadcast", broadcast_terms, t, opts.rootRank);
  return launch({OpType::BROADCAST, "shardway:broadcast", opts.asyncOp}, tensors, tensors,
                [t, root = opts.rootRank](Transport& group) { routed::broadcast(group, t, root); });
}

WorkPtr HostsBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const at::Tensor t = only("all_reduce", tensors);
  const auto op = t.is_sparse() ? std::nullopt : routed::op_of(opts.reduceOp, t);
  if (!op) return gloo_->allreduce(tensors, opts);
  checked("all_reduce", all_reduce_terms, t, opts.reduceOp);
  return launch({OpType::ALLREDUCE, "shardway:all_reduce", opts.asyncOp}, tensors, tensors,
                [t, op = *op](Transport& group) { routed::all_reduce(group, t, op); });
}

WorkPtr HostsBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  std::vector<Op> ops;
  for (const at::Tensor& t : tensors) {
    const auto op = routed::op_of(opts.reduceOp, t);
    if (!op) return gloo_->allreduce_coalesced(tensors, opts);
    checked("all_reduce", all_reduce_terms, t, opts.reduceOp);
    ops.push_back(*op);
  }
  return launch({OpType::ALLREDUCE_COALESCED, "shardway:all_reduce", opts.asyncOp}, tensors, tensors,
                [tensors, ops](Transport& group) {
                  for (size_t i = 0; i < tensors.size(); ++i) routed::all_reduce(group, tensors[i], ops[i]);
                });
}

WorkPtr HostsBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const at::Tensor t = only("reduce", tensors);
  const auto op = routed::op_of(opts.reduceOp, t);
  if (!op) return gloo_->reduce(tensors, opts);
  checked("reduce", reduce_terms, t, opts.reduceOp, opts.rootRank);
  return launch(
      {OpType::REDUCE, "shardway:reduce", opts.asyncOp}, tensors, tensors,
      [t, op = *op, root = opts.rootRank](Transport& group) { routed::reduce(group, t, op, root); });
}

WorkPtr HostsBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& opts) {
  const Tensors list = only("all_gather", outputs);
  const at::Tensor input = only("all_gather", inputs);
  checked("all_gather", all_gather_terms, list, input);
  return launch({OpType::ALLGATHER, "shardway:all_gather", opts.asyncOp}, inputs, list,
                [list, input](Transport& group) { routed::all_gather(group, list, input); });
}

WorkPtr HostsBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::AllgatherOptions& opts) {
  checked("all_gather", all_gather_single_terms, output, input);
  return launch({OpType::_ALLGATHER_BASE, "shardway:_all_gather_base", opts.asyncOp}, {input}, {output},
                [output, input](Transport& group) { routed::all_gather_single(group, output, input); });
}

WorkPtr HostsBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  check_lengths("all_gather_into_tensor", outputs.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    checked("all_gather", all_gather_single_terms, outputs[i], inputs[i]);
  return launch({OpType::COALESCED, "shardway:_all_gather_base", opts.asyncOp}, inputs, outputs,
                [outputs, inputs](Transport& group) {
                  for (size_t i = 0; i < inputs.size(); ++i)
                    routed::all_gather_single(group, outputs[i], inputs[i]);
                });
}

WorkPtr HostsBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                     const c10d::ReduceScatterOptions& opts) {
  const at::Tensor output = only("reduce_scatter", outputs);
  const Tensors list = only("reduce_scatter", inputs);
  const auto op = routed::op_of(opts.reduceOp, output);
  if (!op) return gloo_->reduce_scatter(outputs, inputs, opts);
  checked("reduce_scatter", reduce_scatter_terms, output, list, opts.reduceOp);
  return launch(
      {OpType::REDUCE_SCATTER, "shardway:reduce_scatter", opts.asyncOp}, list, outputs,
      [output, list, op = *op](Transport& group) { routed::reduce_scatter(group, output, list, op); });
}

WorkPtr HostsBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::ReduceScatterOptions& opts) {
  const auto op = routed::op_of(opts.reduceOp, output);
  if (!op) return gloo_->_reduce_scatter_base(output, input, opts);
  checked("reduce_scatter", reduce_scatter_single_terms, output, input, opts.reduceOp);
  return launch({OpType::_REDUCE_SCATTER_BASE, "shardway:_reduce_scatter_base", opts.asyncOp}, {input},
                {output}, [output, input, op = *op](Transport& group) {
                  routed::reduce_scatter_single(group, output, input, op);
                });
}

WorkPtr HostsBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::ReduceScatterOptions& opts) {
  check_lengths("reduce_scatter_tensor", outputs.size(), inputs.size());
  std::optional<Op> op = Op::sum;
  for (const at::Tensor& output : outputs) op = routed::op_of(opts.reduceOp, output);
  if (!op) return gloo_->reduce_scatter_tensor_coalesced(outputs, inputs, opts);
  for (size_t i = 0; i < inputs.size(); ++i)
    checked("reduce_scatter", reduce_scatter_single_terms, outputs[i], inputs[i], opts.reduceOp);
  return launch({OpType::COALESCED, "shardway:_reduce_scatter_base", opts.asyncOp}, inputs, outputs,
                [outputs, inputs, op = *op](Transport& group) {
                  for (size_t i = 0; i < inputs.size(); ++i)
                    routed::reduce_scatter_single(group, outputs[i], inputs[i], op);
                });
}

WorkPtr HostsBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                    std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                    const c10d::AllToAllOptions& opts) {
  const Terms said =
      checked("all_to_all", all_to_all_single_terms, output, input, output_splits, input_splits);
  return launch({OpType::ALLTOALL_BASE, "shardway:all_to_all", opts.asyncOp}, {input}, {output},
                [output, input, takes = said.takes, sends = said.sends](Transport& group) {
                  routed::all_to_all_single(group, output, input, takes, sends);
                });
}

WorkPtr HostsBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  checked("all_to_all", all_to_all_terms, outputs, inputs);
  return launch({OpType::ALLTOALL, "shardway:all_to_all", opts.asyncOp}, inputs, outputs,
                [outputs, inputs](Transport& group) { routed::all_to_all(group, outputs, inputs); });
}

WorkPtr HostsBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return gloo_->allreduce_sparse(tensors, opts);
}

WorkPtr HostsBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) {
  return gloo_->allgather_coalesced(outputs, inputs, opts);
}

WorkPtr HostsBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                             const c10d::GatherOptions& opts) {
  return gloo_->gather(outputs, inputs, opts);
}

WorkPtr HostsBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                              const c10d::ScatterOptions& opts) {
  return gloo_->scatter(outputs, inputs, opts);
}

WorkPtr HostsBackend::barrier(const c10d::BarrierOptions& opts) { return gloo_->barrier(opts); }

void HostsBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  gloo_->monitoredBarrier(opts, wait_all_ranks);
}

WorkPtr HostsBackend::send(Tensors& tensors, int to, int tag) { return gloo_->send(tensors, to, tag); }
WorkPtr HostsBackend::recv(Tensors& tensors, int from, int tag) { return gloo_->recv(tensors, from, tag); }
WorkPtr HostsBackend::recvAnysource(Tensors& tensors, int tag) { return gloo_->recvAnysource(tensors, tag); }

void HostsBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  gloo_->setTimeout(timeout);
}

c10d::ErrorType HostsBackend::getError() {
  try {
    room_.ledger->check();
  } catch (const c10::DistBackendError&) {
    return c10d::ErrorType::COMM_ERROR;
  }
  return is_destroyed_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void HostsBackend::abort() { hosts_.give_up("it aborted the group"); }

// Posted calls run first.
void HostsBackend::shutdown() {
  if (is_destroyed_.exchange(true)) return;
  queue_->in_turn([&] {
    hosts_.leave();
    room_.lifelines->leave();
  });
  gloo_->shutdown();
}

c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                               int size, const c10::intrusive_ptr<Options>& options,
                                               const MakeEngine& make_gloo) {
  Met met;
  Identity(options->group_name, options->global_ranks_in_group).explain([&] {
    met = meet(*store, rank, size, options->timeout);
  });
  if (met.hosts) return c10::make_intrusive<HostsBackend>(options, make_gloo(met.name + "gloo"), *met.hosts);
  return c10::make_intrusive<Backend>(store, rank, size, options,
                                      std::make_shared<ShmEngine>(std::move(met.group)));
}

}  // namespace shardway::backend
