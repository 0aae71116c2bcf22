#include "c10d_calls/routed_collectives.h"

#include <ATen/ATen.h>

#include "c10d_calls/memory.h"
#include "c10d_calls/memory_collectives.h"
#include "c10d_calls/reductions.h"
#include "transport/common/boxes.h"
#include "transport/common/two_routes.h"

namespace shardway::backend {
namespace {

using ElementCounts = std::vector<int64_t>;

// What all ranks of a call have in common.
struct Facts {
  at::ScalarType dtype;
  Op op = Op::sum;
  int64_t root = 0;
  int64_t elements = 0;  // if the ranks' tensors are alike
};

Subject subject_of(const char* name, const Facts& facts) {
  uint64_t mark = shm::mark_of(name, static_cast<uint64_t>(facts.dtype));
  mark = shm::mark_of(mark, static_cast<uint64_t>(facts.op));
  mark = shm::mark_of(mark, static_cast<uint64_t>(facts.root));
  mark = shm::mark_of(mark, static_cast<uint64_t>(facts.elements));
  const auto words = [name, facts] {
    return c10::str(name, " of ", c10::toString(facts.dtype), ", ", name_of(facts.op), ", root ", facts.root,
                    ", ", facts.elements, " elements");
  };
  return {.mark = mark, .name = name, .words = words};
}

void check_elements(const char* name, const char* what, int64_t found, int64_t expected) {
  TORCH_CHECK_VALUE(found == expected, name, ": ", what, " has ", found, " elements where ", expected,
                    " were expected");
}

ElementCounts sizes_of(const Tensors& tensors) {
  ElementCounts sizes;
  for (const at::Tensor& t : tensors) sizes.push_back(t.numel());
  return sizes;
}

ElementCounts by_rank(const Counts& counts, int64_t ranks) {
  ElementCounts elements;
  for (int64_t rank = 0; rank < ranks; ++rank) elements.push_back(counts.of(rank));
  return elements;
}

void split_into(const Tensors& outputs, const at::Tensor& run) {
  int64_t begin = 0;
  for (const at::Tensor& output : outputs) {
    output.copy_(run.narrow(0, begin, output.numel()).view(output.sizes()));
    begin += output.numel();
  }
}

// `body` fills the output, as a run of memory.
template <class Body>
void into(const at::Tensor& output, Body&& body) {
  const Output filled(output);
  body(filled.buffer().view({-1}));
  filled.finish();
}

void gather_into(Transport& transport, const at::Tensor& run, const at::Tensor& input,
                 const ElementCounts& sizes) {
  check_elements("all_gather", "the input", input.numel(), sizes[static_cast<size_t>(transport.rank())]);
  const Split split{.shape = {0}, .dim = 0, .sizes = sizes};
  transport
      .start(all_gather_route(split, transport.rank()), packed(input).view({-1}), run, {},
             subject_of("all_gather", {.dtype = input.scalar_type()}))
      ->finish();
}

void scatter_sums(Transport& transport, const at::Tensor& output, const at::Tensor& run,
                  const ElementCounts& sizes, Op op) {
  check_elements("reduce_scatter", "the output", output.numel(),
                 sizes[static_cast<size_t>(transport.rank())]);
  const Split split{.shape = {0}, .dim = 0, .sizes = sizes};
  const Route route = reduce_scatter_route(split, transport.rank(), op);
  into(output, [&](const at::Tensor& own) {
    transport
        .start(route, run, own, {}, subject_of("reduce_scatter", {.dtype = run.scalar_type(), .op = op}))
        ->finish();
  });
}

void exchange(Transport& transport, const at::Tensor& run, const at::Tensor& input, const ElementCounts& recv,
              const ElementCounts& send) {
  const Route route = all_to_all_route({input.numel()}, 0, {.send = send, .recv = recv}, transport.rank());
  transport.start(route, input, run, {}, subject_of("all_to_all", {.dtype = input.scalar_type()}))->finish();
}

// The inputs of all ranks, which they exchange in one round.
KnownInputs all_inputs(Transport& transport, const at::Tensor& x, const Subject& subject) {
  const auto bytes = static_cast<int64_t>(x.nbytes());
  const Blocks blocks = transport.all_gather_block(shardway::bytes_of(x), bytes, subject);
  KnownInputs known;
  for (int64_t rank = 0; rank < transport.size(); ++rank) {
    check_elements("all_reduce", "another rank's tensor", blocks.bytes[static_cast<size_t>(rank)], bytes);
    known.push_back(blocks.rows.select(0, rank).view(x.scalar_type()).view(x.sizes()));
  }
  return known;
}

// Small tensors go to all ranks in one round, and each rank combines them. On a device, large ones are
// combined where they are: no rank reads the share that another one writes.
void reduce_all(Transport& transport, const at::Tensor& t, Op op) {
  const Subject subject =
      subject_of("all_reduce", {.dtype = t.scalar_type(), .op = op, .elements = t.numel()});
  const at::Tensor x = packed(t);
  const Route route = all_reduce_route(x.sizes().vec(), transport.rank(), transport.size(), op);
  const auto bytes = static_cast<int64_t>(x.nbytes());
  const bool is_in_two = runs_in_two(route, x, transport);
  const at::Tensor out = is_in_two && !x.is_cpu() ? x : at::empty_like(x);
  if (is_in_two) {
    start_in_two(transport, route, x, out, subject)->finish();
  } else if (bytes > 0) {
    const bool is_in_one_round = x.is_cpu() && bytes <= transport.slot_bytes();
    const KnownInputs known = is_in_one_round ? all_inputs(transport, x, subject) : KnownInputs{};
    transport.start(route, x, out, known, subject)->finish();
  }
  if (!out.is_same(t)) t.copy_(out);
}

void reduce_to(Transport& transport, const at::Tensor& t, Op op, int64_t root) {
  const at::Tensor x = packed(t);
  const at::Tensor out = at::empty_like(x);
  Route route = transposed(broadcast_route(x.sizes().vec(), transport.rank(), transport.size(), root));
  route.op = op == Op::avg ? Op::sum : op;
  route.divisor = op == Op::avg ? transport.size() : 1;
  transport
      .start(route, x, out, {},
             subject_of("reduce", {.dtype = t.scalar_type(), .op = op, .root = root, .elements = t.numel()}))
      ->finish();
  if (transport.rank() == root) t.copy_(out);
}

Tensors on_the_cpu(const Tensors& list) {
  Tensors copies;
  for (const at::Tensor& t : list) copies.push_back(t.cpu());
  return copies;
}

}  // namespace

void RoutedCollectives::barrier() {
  on_cpu([](Collectives& memory) { memory.barrier(); });
}

void RoutedCollectives::all_reduce(const at::Tensor& t, const c10d::ReduceOp& op) {
  if (!agrees(Collective::dist_all_reduce, [&] { return all_reduce_terms(place(), t, op); })) return;
  if (const auto known = op_of(op)) return reduce_all(transport_, t, *known);
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
  if (!agrees(Collective::dist_broadcast, [&] { return broadcast_terms(place(), t, root); })) return;
  const at::Tensor x = packed(t);
  const at::Tensor out = at::empty_like(x);
  const Route route = broadcast_route(x.sizes().vec(), transport_.rank(), transport_.size(), root);
  const Subject subject =
      subject_of("broadcast", {.dtype = t.scalar_type(), .root = root, .elements = t.numel()});
  transport_.start(route, x, out, {}, subject)->finish();
  if (transport_.rank() != root) t.copy_(out);
}

void RoutedCollectives::reduce(const at::Tensor& t, const c10d::ReduceOp& op, int64_t root) {
  if (!agrees(Collective::dist_reduce, [&] { return reduce_terms(place(), t, op, root); })) return;
  if (const auto known = op_of(op)) return reduce_to(transport_, t, *known, root);
  const at::Tensor copy = t.cpu();
  on_cpu([&](Collectives& memory) { memory.reduce(copy, op, root); });
  if (transport_.rank() == root) t.copy_(copy);
}

void RoutedCollectives::all_gather(const Tensors& outputs, const at::Tensor& input) {
  if (!agrees(Collective::dist_all_gather, [&] { return all_gather_terms(place(), outputs, input); })) return;
  const ElementCounts sizes = sizes_of(outputs);
  const at::Tensor run = at::empty({c10::sum_integers(sizes)}, input.options());
  gather_into(transport_, run, input, sizes);
  split_into(outputs, run);
}

void RoutedCollectives::all_gather_single(const at::Tensor& output, const at::Tensor& input) {
  if (!agrees(Collective::dist_all_gather, [&] { return all_gather_single_terms(place(), output, input); }))
    return;
  const ElementCounts sizes(static_cast<size_t>(transport_.size()), input.numel());
  into(output, [&](const at::Tensor& run) { gather_into(transport_, run, input, sizes); });
}

void RoutedCollectives::gather(const Tensors& outputs, const at::Tensor& input, int64_t root) {
  if (!agrees(Collective::dist_gather, [&] { return gather_terms(place(), outputs, input, root); })) return;
  ElementCounts send(static_cast<size_t>(transport_.size()));
  send[static_cast<size_t>(root)] = input.numel();
  const bool is_root = transport_.rank() == root;
  const ElementCounts recv = is_root ? sizes_of(outputs) : ElementCounts(send.size());
  const at::Tensor run = at::empty({c10::sum_integers(recv)}, input.options());
  exchange(transport_, run, packed(input).view({-1}), recv, send);
  if (is_root) split_into(outputs, run);
}

void RoutedCollectives::scatter(const at::Tensor& output, const Tensors& inputs, int64_t root) {
  if (!agrees(Collective::dist_scatter, [&] { return scatter_terms(place(), output, inputs, root); })) return;
  ElementCounts recv(static_cast<size_t>(transport_.size()));
  recv[static_cast<size_t>(root)] = output.numel();
  const bool is_root = transport_.rank() == root;
  const ElementCounts send = is_root ? sizes_of(inputs) : ElementCounts(recv.size());
  const at::Tensor run = is_root ? joined(inputs) : at::empty({0}, output.options());
  into(output, [&](const at::Tensor& own) { exchange(transport_, own, run, recv, send); });
}

void RoutedCollectives::reduce_scatter(const at::Tensor& output, const Tensors& inputs,
                                       const c10d::ReduceOp& op) {
  if (!agrees(Collective::dist_reduce_scatter,
              [&] { return reduce_scatter_terms(place(), output, inputs, op); }))
    return;
  if (const auto known = op_of(op))
    return scatter_sums(transport_, output, joined(inputs), sizes_of(inputs), *known);
  const at::Tensor copy = at::empty_like(output, output.options().device(at::kCPU));
  on_cpu([&, list = on_the_cpu(inputs)](Collectives& memory) { memory.reduce_scatter(copy, list, op); });
  output.copy_(copy);
}

void RoutedCollectives::reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                              const c10d::ReduceOp& op) {
  if (!agrees(Collective::dist_reduce_scatter,
              [&] { return reduce_scatter_single_terms(place(), output, input, op); }))
    return;
  if (const auto known = op_of(op)) {
    const ElementCounts sizes(static_cast<size_t>(transport_.size()), output.numel());
    return scatter_sums(transport_, output, packed(input).view({-1}), sizes, *known);
  }
  const at::Tensor copy = at::empty_like(output, output.options().device(at::kCPU));
  on_cpu([&, x = input.cpu()](Collectives& memory) { memory.reduce_scatter_single(copy, x, op); });
  output.copy_(copy);
}

void RoutedCollectives::all_to_all(const Tensors& outputs, const Tensors& inputs) {
  if (!agrees(Collective::dist_all_to_all, [&] { return all_to_all_terms(place(), outputs, inputs); }))
    return;
  const ElementCounts recv = sizes_of(outputs);
  const at::Tensor run = at::empty({c10::sum_integers(recv)}, outputs.front().options());
  exchange(transport_, run, joined(inputs), recv, sizes_of(inputs));
  split_into(outputs, run);
}

void RoutedCollectives::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                          const std::vector<int64_t>& output_splits,
                                          const std::vector<int64_t>& input_splits) {
  Terms said;
  if (!agrees(Collective::dist_all_to_all, [&] {
        return said = all_to_all_single_terms(place(), output, input, output_splits, input_splits);
      }))
    return;
  const ElementCounts recv = by_rank(said.takes, transport_.size());
  const ElementCounts send = by_rank(said.sends, transport_.size());
  into(output,
       [&](const at::Tensor& run) { exchange(transport_, run, packed(input).view({-1}), recv, send); });
}

bool DeviceCollectives::agrees(Collective call, const std::function<Terms()>& terms) {
  memory_.in_turn(
      [&](shm::SharedGroup& group) { table_.run(group, call, [&] { return Prepared{terms()}; }); });
  return true;
}

// The caller's tensors are copied to the CPU, for which the host waits.
void DeviceCollectives::on_cpu(const std::function<void(Collectives&)>& call) {
  memory_.in_turn([&](shm::SharedGroup& group) {
    MemoryCollectives collectives(group, table_);
    call(collectives);
  });
}

}  // namespace shardway::backend
