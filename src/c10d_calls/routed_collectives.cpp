#include "c10d_calls/routed_collectives.h"

#include <ATen/ATen.h>

#include "c10d_calls/memory.h"
#include "c10d_calls/memory_collectives.h"
#include "c10d_calls/routed.h"

namespace shardway::backend {
namespace {

Tensors on_the_cpu(const Tensors& list) {
  Tensors copies;
  for (const at::Tensor& t : list) copies.push_back(t.cpu());
  return copies;
}

}  // namespace

void RoutedCollectives::agree(Collective call, const std::function<Terms()>& terms) {
  memory_.in_turn(
      [&](shm::SharedGroup& group) { table_.run(group, call, [&] { return Prepared{terms()}; }); });
}

// The caller's tensors are copied to the CPU, for which the host waits.
void RoutedCollectives::on_cpu(const std::function<void(Collectives&)>& call) {
  memory_.in_turn([&](shm::SharedGroup& group) {
    MemoryCollectives collectives(group, table_);
    call(collectives);
  });
}

void RoutedCollectives::barrier() {
  on_cpu([](Collectives& memory) { memory.barrier(); });
}

void RoutedCollectives::all_reduce(const at::Tensor& t, const c10d::ReduceOp& op) {
  agree(Collective::dist_all_reduce, [&] { return all_reduce_terms(place(), t, op); });
  if (const auto known = routed::op_of(op, t)) return routed::all_reduce(transport_, t, *known);
  const at::Tensor copy = t.cpu();
  on_cpu([&](Collectives& memory) { memory.all_reduce(copy, op); });
  t.copy_(copy);
}

void RoutedCollectives::all_reduce_together(const Tensors& list, const c10d::ReduceOp& op) {
  for (const at::Tensor& t : list) all_reduce(t, op);
}

void RoutedCollectives::sparse_all_reduce(const at::Tensor& t, const c10d::ReduceOp& op) {
  const at::Tensor copy = t.cpu();
  on_cpu([&](Collectives& memory) { memory.sparse_all_reduce(copy, op); });
  t.copy_(copy.to(t.device()));
}

void RoutedCollectives::broadcast(const at::Tensor& t, int64_t root) {
  agree(Collective::dist_broadcast, [&] { return broadcast_terms(place(), t, root); });
  routed::broadcast(transport_, t, root);
}

void RoutedCollectives::reduce(const at::Tensor& t, const c10d::ReduceOp& op, int64_t root) {
  agree(Collective::dist_reduce, [&] { return reduce_terms(place(), t, op, root); });
  if (const auto known = routed::op_of(op, t)) return routed::reduce(transport_, t, *known, root);
  const at::Tensor copy = t.cpu();
  on_cpu([&](Collectives& memory) { memory.reduce(copy, op, root); });
  if (transport_.rank() == root) t.copy_(copy);
}

void RoutedCollectives::all_gather(const Tensors& outputs, const at::Tensor& input) {
  agree(Collective::dist_all_gather, [&] { return all_gather_terms(place(), outputs, input); });
  routed::all_gather(transport_, outputs, packed(input));
}

void RoutedCollectives::all_gather_single(const at::Tensor& output, const at::Tensor& input) {
  agree(Collective::dist_all_gather, [&] { return all_gather_single_terms(place(), output, input); });
  routed::all_gather_single(transport_, output, packed(input));
}

void RoutedCollectives::gather(const Tensors& outputs, const at::Tensor& input, int64_t root) {
  agree(Collective::dist_gather, [&] { return gather_terms(place(), outputs, input, root); });
  routed::gather(transport_, outputs, packed(input), root);
}

void RoutedCollectives::scatter(const at::Tensor& output, const Tensors& inputs, int64_t root) {
  agree(Collective::dist_scatter, [&] { return scatter_terms(place(), output, inputs, root); });
  routed::scatter(transport_, output, inputs, root);
}

void RoutedCollectives::reduce_scatter(const at::Tensor& output, const Tensors& inputs,
                                       const c10d::ReduceOp& op) {
  agree(Collective::dist_reduce_scatter, [&] { return reduce_scatter_terms(place(), output, inputs, op); });
  if (const auto known = routed::op_of(op, output))
    return routed::reduce_scatter(transport_, output, inputs, *known);
  const at::Tensor copy = at::empty_like(output, output.options().device(at::kCPU));
  on_cpu([&, list = on_the_cpu(inputs)](Collectives& memory) { memory.reduce_scatter(copy, list, op); });
  output.copy_(copy);
}

void RoutedCollectives::reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                              const c10d::ReduceOp& op) {
  agree(Collective::dist_reduce_scatter,
        [&] { return reduce_scatter_single_terms(place(), output, input, op); });
  if (const auto known = routed::op_of(op, output))
    return routed::reduce_scatter_single(transport_, output, packed(input), *known);
  const at::Tensor copy = at::empty_like(output, output.options().device(at::kCPU));
  on_cpu([&, x = input.cpu()](Collectives& memory) { memory.reduce_scatter_single(copy, x, op); });
  output.copy_(copy);
}

void RoutedCollectives::all_to_all(const Tensors& outputs, const Tensors& inputs) {
  agree(Collective::dist_all_to_all, [&] { return all_to_all_terms(place(), outputs, inputs); });
  routed::all_to_all(transport_, outputs, inputs);
}

void RoutedCollectives::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                          const std::vector<int64_t>& output_splits,
                                          const std::vector<int64_t>& input_splits) {
  Terms said;
  agree(Collective::dist_all_to_all,
        [&] { return said = all_to_all_single_terms(place(), output, input, output_splits, input_splits); });
  routed::all_to_all_single(transport_, output, packed(input), said.takes, said.sends);
}

}  // namespace shardway::backend
