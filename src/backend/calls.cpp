#include "backend/calls.h"

#include <ATen/ATen.h>

#include "c10d_calls/memory.h"

namespace shardway::backend {
namespace {

using c10d::OpType;

Tensors all_of(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

CallsBackend::CallsBackend(int rank, int size, c10::intrusive_ptr<Options> options)
    : c10d::Backend(rank, size),
      options_(std::move(options)),
      identity_(std::make_shared<Identity>(options_->group_name, options_->global_ranks_in_group)) {}

WorkPtr CallsBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const at::Tensor t = only("broadcast", tensors);
  return launch(CallOptions::of(OpType::BROADCAST, "shardway:broadcast", opts), tensors, tensors,
                [t, root = opts.rootRank](Collectives& group) { group.broadcast(t, root); });
}

WorkPtr CallsBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (auto* other = other_for(opts.reduceOp)) return other->allreduce(tensors, opts);
  const at::Tensor t = only("all_reduce", tensors);
  if (t.is_sparse()) return allreduce_sparse(tensors, opts);
  return launch(CallOptions::of(OpType::ALLREDUCE, "shardway:all_reduce", opts), tensors, tensors,
                [t, op = opts.reduceOp](Collectives& group) { group.all_reduce(t, op); });
}

WorkPtr CallsBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const at::Tensor t = only("all_reduce", tensors);
  return launch(CallOptions::of(OpType::_ALLREDUCE_SPARSE, "shardway:all_reduce", opts), tensors, tensors,
                [t, op = opts.reduceOp](Collectives& group) { group.sparse_all_reduce(t, op); });
}

WorkPtr CallsBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  if (auto* other = other_for(opts.reduceOp)) return other->allreduce_coalesced(tensors, opts);
  return launch(
      CallOptions::of(OpType::ALLREDUCE_COALESCED, "shardway:all_reduce", opts), tensors, tensors,
      [tensors, op = opts.reduceOp](Collectives& group) { group.all_reduce_together(tensors, op); });
}

WorkPtr CallsBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  if (auto* other = other_for(opts.reduceOp)) return other->reduce(tensors, opts);
  const at::Tensor t = only("reduce", tensors);
  return launch(
      CallOptions::of(OpType::REDUCE, "shardway:reduce", opts), tensors, tensors,
      [t, op = opts.reduceOp, root = opts.rootRank](Collectives& group) { group.reduce(t, op, root); });
}

WorkPtr CallsBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& opts) {
  const Tensors list = only("all_gather", outputs);
  const at::Tensor input = only("all_gather", inputs);
  return launch(CallOptions::of(OpType::ALLGATHER, "shardway:all_gather", opts), inputs, list,
                [list, input](Collectives& group) { group.all_gather(list, input); });
}

WorkPtr CallsBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::AllgatherOptions& opts) {
  return launch(CallOptions::of(OpType::_ALLGATHER_BASE, "shardway:_all_gather_base", opts), {input},
                {output}, [output, input](Collectives& group) { group.all_gather_single(output, input); });
}

// Here c10d passes the lists by rank: outputs[r][i] is input i of rank r.
WorkPtr CallsBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) {
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == size_, "all_gather_coalesced: ", outputs.size(),
                    " lists for ", size_, " ranks");
  for (const Tensors& list : outputs) check_lengths("all_gather_coalesced", list.size(), inputs.size());
  return launch(CallOptions::of(OpType::ALLGATHER_COALESCED, "shardway:all_gather", opts), inputs,
                all_of(outputs), [outputs, inputs](Collectives& group) {
                  for (size_t i = 0; i < inputs.size(); ++i) {
                    Tensors list;
                    for (const Tensors& of_rank : outputs) list.push_back(of_rank[i]);
                    group.all_gather(list, inputs[i]);
                  }
                });
}

WorkPtr CallsBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  check_lengths("all_gather_into_tensor", outputs.size(), inputs.size());
  return launch(CallOptions::of(OpType::COALESCED, "shardway:_all_gather_base", opts), inputs, outputs,
                [outputs, inputs](Collectives& group) {
                  for (size_t i = 0; i < inputs.size(); ++i) group.all_gather_single(outputs[i], inputs[i]);
                });
}

WorkPtr CallsBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                             const c10d::GatherOptions& opts) {
  const at::Tensor input = only("gather", inputs);
  const Tensors list = outputs.empty() ? Tensors{} : only("gather", outputs);
  return launch(CallOptions::of(OpType::GATHER, "shardway:gather", opts), inputs, list,
                [list, input, root = opts.rootRank](Collectives& group) { group.gather(list, input, root); });
}

WorkPtr CallsBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                              const c10d::ScatterOptions& opts) {
  const at::Tensor output = only("scatter", outputs);
  const Tensors list = inputs.empty() ? Tensors{} : only("scatter", inputs);
  return launch(
      CallOptions::of(OpType::SCATTER, "shardway:scatter", opts), list, outputs,
      [output, list, root = opts.rootRank](Collectives& group) { group.scatter(output, list, root); });
}

WorkPtr CallsBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                     const c10d::ReduceScatterOptions& opts) {
  if (auto* other = other_for(opts.reduceOp)) return other->reduce_scatter(outputs, inputs, opts);
  const at::Tensor output = only("reduce_scatter", outputs);
  const Tensors list = only("reduce_scatter", inputs);
  return launch(
      CallOptions::of(OpType::REDUCE_SCATTER, "shardway:reduce_scatter", opts), list, outputs,
      [output, list, op = opts.reduceOp](Collectives& group) { group.reduce_scatter(output, list, op); });
}

WorkPtr CallsBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::ReduceScatterOptions& opts) {
  if (auto* other = other_for(opts.reduceOp)) return other->_reduce_scatter_base(output, input, opts);
  return launch(CallOptions::of(OpType::_REDUCE_SCATTER_BASE, "shardway:_reduce_scatter_base", opts), {input},
                {output}, [output, input, op = opts.reduceOp](Collectives& group) {
                  group.reduce_scatter_single(output, input, op);
                });
}

WorkPtr CallsBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::ReduceScatterOptions& opts) {
  if (auto* other = other_for(opts.reduceOp))
    return other->reduce_scatter_tensor_coalesced(outputs, inputs, opts);
  check_lengths("reduce_scatter_tensor", outputs.size(), inputs.size());
  return launch(CallOptions::of(OpType::COALESCED, "shardway:_reduce_scatter_base", opts), inputs, outputs,
                [outputs, inputs, op = opts.reduceOp](Collectives& group) {
                  for (size_t i = 0; i < inputs.size(); ++i)
                    group.reduce_scatter_single(outputs[i], inputs[i], op);
                });
}

WorkPtr CallsBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                    std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                    const c10d::AllToAllOptions& opts) {
  CallOptions options = CallOptions::of(OpType::ALLTOALL_BASE, "shardway:all_to_all", opts);
  options.input_splits = input_splits;
  options.output_splits = output_splits;
  return launch(options, {input}, {output}, [output, input, output_splits, input_splits](Collectives& group) {
    group.all_to_all_single(output, input, output_splits, input_splits);
  });
}

WorkPtr CallsBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  return launch(CallOptions::of(OpType::ALLTOALL, "shardway:all_to_all", opts), inputs, outputs,
                [outputs, inputs](Collectives& group) { group.all_to_all(outputs, inputs); });
}

WorkPtr CallsBackend::barrier(const c10d::BarrierOptions& opts) {
  return launch(CallOptions::of(OpType::BARRIER, "shardway:barrier", opts), {}, {},
                [](Collectives& group) { group.barrier(); });
}

}  // namespace shardway::backend
