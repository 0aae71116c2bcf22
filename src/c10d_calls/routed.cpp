#include "c10d_calls/routed.h"

#include <ATen/ATen.h>

#include "c10d_calls/memory.h"
#include "transport/common/boxes.h"
#include "transport/common/two_routes.h"
#include "transport/shm/shm_part.h"

namespace shardway::backend::routed {
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

ElementCounts by_rank(const Counts& counts, int64_t ranks) {
  ElementCounts elements;
  for (int64_t rank = 0; rank < ranks; ++rank) elements.push_back(counts.of(rank));
  return elements;
}

void gather_into(Transport& transport, const at::Tensor& run, const at::Tensor& input,
                 const ElementCounts& sizes) {
  check_elements("all_gather", "the input", input.numel(), sizes[static_cast<size_t>(transport.rank())]);
  const Split split{.shape = {0}, .dim = 0, .sizes = sizes};
  transport
      .start(all_gather_route(split, transport.rank()), input.reshape({-1}), run, {},
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

}  // namespace

std::optional<Op> op_of(const c10d::ReduceOp& op, const at::Tensor& t) {
  element_of(t.scalar_type());
  using c10d::ReduceOp;
  switch (op) {
    case ReduceOp::SUM:
      return Op::sum;
    case ReduceOp::AVG:
      TORCH_CHECK_VALUE(t.is_floating_point() || t.is_complex(), "the average of integers is not defined");
      return Op::avg;
    case ReduceOp::MIN:
      return Op::min;
    case ReduceOp::MAX:
      return Op::max;
    case ReduceOp::PRODUCT:
      return Op::product;
    default:
      return std::nullopt;
  }
}

// Small tensors go to all ranks in one round, and each rank combines them. On a device, large ones are
// combined where they are: no rank reads the share that another one writes.
void all_reduce(Transport& transport, const at::Tensor& t, Op op) {
  const Subject subject =
      subject_of("all_reduce", {.dtype = t.scalar_type(), .op = op, .elements = t.numel()});
  const at::Tensor x = t.contiguous();
  const Route route = all_reduce_route(x.sizes().vec(), transport.rank(), transport.size(), op);
  const auto bytes = static_cast<int64_t>(x.nbytes());
  const bool is_in_two = runs_in_two(route, x, transport);
  const at::Tensor out = is_in_two && !x.is_cpu() ? x : at::empty_like(x);
  if (is_in_two) {
    start_in_two(transport, route, x, out, subject)->finish();
  } else if (bytes > transport.slot_bytes() || (bytes > 0 && !x.is_cpu())) {
    transport.start(route, x, out, {}, subject)->finish();
  } else if (bytes > 0) {
    const Blocks blocks = transport.all_gather_block(shardway::bytes_of(x), bytes, subject);
    KnownInputs known;
    for (int64_t rank = 0; rank < transport.size(); ++rank) {
      check_elements("all_reduce", "another rank's tensor", blocks.bytes[static_cast<size_t>(rank)], bytes);
      known.push_back(blocks.rows.select(0, rank).view(x.scalar_type()).view(x.sizes()));
    }
    transport.start(route, x, out, known, subject)->finish();
  }
  if (!out.is_same(t)) t.copy_(out);
}

void reduce(Transport& transport, const at::Tensor& t, Op op, int64_t root) {
  const at::Tensor x = t.contiguous();
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

void broadcast(Transport& transport, const at::Tensor& t, int64_t root) {
  const at::Tensor x = t.contiguous();
  const at::Tensor out = at::empty_like(x);
  const Route route = broadcast_route(x.sizes().vec(), transport.rank(), transport.size(), root);
  transport
      .start(route, x, out, {},
             subject_of("broadcast", {.dtype = t.scalar_type(), .root = root, .elements = t.numel()}))
      ->finish();
  if (transport.rank() != root) t.copy_(out);
}

void all_gather(Transport& transport, const Tensors& outputs, const at::Tensor& input) {
  const ElementCounts sizes = sizes_of(outputs);
  const at::Tensor run = at::empty({c10::sum_integers(sizes)}, input.options());
  gather_into(transport, run, input, sizes);
  split_into(outputs, run);
}

void all_gather_single(Transport& transport, const at::Tensor& output, const at::Tensor& input) {
  const ElementCounts sizes(static_cast<size_t>(transport.size()), input.numel());
  into(output, [&](const at::Tensor& run) { gather_into(transport, run, input, sizes); });
}

void gather(Transport& transport, const Tensors& outputs, const at::Tensor& input, int64_t root) {
  ElementCounts send(static_cast<size_t>(transport.size()));
  send[static_cast<size_t>(root)] = input.numel();
  const ElementCounts recv = transport.rank() == root ? sizes_of(outputs) : ElementCounts(send.size());
  const at::Tensor run = at::empty({c10::sum_integers(recv)}, input.options());
  exchange(transport, run, input.reshape({-1}), recv, send);
  if (transport.rank() == root) split_into(outputs, run);
}

void scatter(Transport& transport, const at::Tensor& output, const Tensors& inputs, int64_t root) {
  ElementCounts recv(static_cast<size_t>(transport.size()));
  recv[static_cast<size_t>(root)] = output.numel();
  const bool is_root = transport.rank() == root;
  const ElementCounts send = is_root ? sizes_of(inputs) : ElementCounts(recv.size());
  const at::Tensor run = is_root ? joined(inputs) : at::empty({0}, output.options());
  into(output, [&](const at::Tensor& own) { exchange(transport, own, run, recv, send); });
}

void reduce_scatter(Transport& transport, const at::Tensor& output, const Tensors& inputs, Op op) {
  scatter_sums(transport, output, joined(inputs), sizes_of(inputs), op);
}

void reduce_scatter_single(Transport& transport, const at::Tensor& output, const at::Tensor& input, Op op) {
  const ElementCounts sizes(static_cast<size_t>(transport.size()), output.numel());
  scatter_sums(transport, output, input.reshape({-1}), sizes, op);
}

void all_to_all(Transport& transport, const Tensors& outputs, const Tensors& inputs) {
  const ElementCounts recv = sizes_of(outputs);
  const at::Tensor run = at::empty({c10::sum_integers(recv)}, outputs.front().options());
  exchange(transport, run, joined(inputs), recv, sizes_of(inputs));
  split_into(outputs, run);
}

void all_to_all_single(Transport& transport, const at::Tensor& output, const at::Tensor& input,
                       const Counts& takes, const Counts& sends) {
  const ElementCounts recv = by_rank(takes, transport.size());
  const ElementCounts send = by_rank(sends, transport.size());
  into(output, [&](const at::Tensor& run) { exchange(transport, run, input.reshape({-1}), recv, send); });
}

}  // namespace shardway::backend::routed
