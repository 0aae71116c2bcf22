#include "backend/hosts_backend.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

#include "backend/meeting.h"
#include "backend/memory.h"
#include "backend/work.h"
#include "transport/common/boxes.h"
#include "transport/common/two_routes.h"
#include "transport/shm/shm_part.h"

namespace shardway::backend {
namespace {

using c10d::OpType;
using c10d::ReduceOp;

using ElementCounts = std::vector<int64_t>;

// Empty for an op that is left to gloo. Throws c10::ValueError for a dtype that cannot be reduced.
std::optional<Op> op_of(const ReduceOp& op, const at::Tensor& t) {
  element_of(t.scalar_type());
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

void check_list(const char* name, const Tensors& list, int64_t ranks, const at::Tensor& like) {
  TORCH_CHECK_VALUE(static_cast<int64_t>(list.size()) == ranks, name, ": a list of ", list.size(),
                    " tensors for ", ranks, " ranks");
  for (const at::Tensor& t : list)
    TORCH_CHECK_VALUE(t.scalar_type() == like.scalar_type(), name, ": tensors of ", t.scalar_type(), " and ",
                      like.scalar_type());
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

// Small tensors go to all ranks in one round, and each rank combines them.
void all_reduce(Transport& transport, const at::Tensor& t, Op op) {
  const Subject subject =
      subject_of("all_reduce", {.dtype = t.scalar_type(), .op = op, .elements = t.numel()});
  const at::Tensor x = t.contiguous();
  const at::Tensor out = at::empty_like(x);
  const Route route = all_reduce_route(x.sizes().vec(), transport.rank(), transport.size(), op);
  const auto bytes = static_cast<int64_t>(x.nbytes());
  if (bytes > transport.slot_bytes()) {
    start_in_two(transport, route, x, out, subject)->finish();
  } else if (bytes > 0) {
    const Blocks blocks = transport.all_gather_block(shardway::bytes_of(x), bytes, subject);
    KnownInputs known;
    for (int64_t rank = 0; rank < transport.size(); ++rank) {
      check_elements("all_reduce", "another rank's tensor", blocks.bytes[static_cast<size_t>(rank)], bytes);
      known.push_back(blocks.rows.select(0, rank).view(x.scalar_type()).view(x.sizes()));
    }
    transport.start(route, x, out, known, subject)->finish();
  }
  t.copy_(out);
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

void all_gather(Transport& transport, const at::Tensor& run, const at::Tensor& input,
                const ElementCounts& sizes) {
  check_elements("all_gather", "the input", input.numel(), sizes[static_cast<size_t>(transport.rank())]);
  const Split split{.shape = {0}, .dim = 0, .sizes = sizes};
  transport
      .start(all_gather_route(split, transport.rank()), input.reshape({-1}), run, {},
             subject_of("all_gather", {.dtype = input.scalar_type()}))
      ->finish();
}

void all_gather_single(Transport& transport, const at::Tensor& output, const at::Tensor& input) {
  const ElementCounts sizes(static_cast<size_t>(transport.size()), input.numel());
  check_elements("all_gather_into_tensor", "the output", output.numel(), input.numel() * transport.size());
  into(output, [&](const at::Tensor& run) { all_gather(transport, run, input, sizes); });
}

void reduce_scatter(Transport& transport, const at::Tensor& output, const at::Tensor& run,
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

void reduce_scatter_single(Transport& transport, const at::Tensor& output, const at::Tensor& input, Op op) {
  const ElementCounts sizes(static_cast<size_t>(transport.size()), output.numel());
  check_elements("reduce_scatter_tensor", "the input", input.numel(), output.numel() * transport.size());
  reduce_scatter(transport, output, input.reshape({-1}), sizes, op);
}

void all_to_all(Transport& transport, const at::Tensor& run, const at::Tensor& input,
                const ElementCounts& recv, const ElementCounts& send) {
  const Route route = all_to_all_route({input.numel()}, 0, {.send = send, .recv = recv}, transport.rank());
  transport.start(route, input, run, {}, subject_of("all_to_all", {.dtype = input.scalar_type()}))->finish();
}

// The elements of each rank's rows; equal parts if no splits are given.
ElementCounts elements_of(const at::Tensor& t, const std::vector<int64_t>& splits, int64_t ranks) {
  const int64_t rows = t.dim() == 0 ? 1 : t.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % ranks == 0, "all_to_all_single: ", rows, " rows cannot be split among ", ranks,
                      " ranks");
    return ElementCounts(static_cast<size_t>(ranks), t.numel() / ranks);
  }
  TORCH_CHECK_VALUE(static_cast<int64_t>(splits.size()) == ranks, "all_to_all_single: ", splits.size(),
                    " splits for ", ranks, " ranks");
  ElementCounts elements;
  int64_t total = 0;
  for (const int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "all_to_all_single: a split of ", split, " rows");
    elements.push_back(rows == 0 ? 0 : split * (t.numel() / rows));
    total += split;
  }
  TORCH_CHECK_VALUE(total == rows, "all_to_all_single: the splits add up to ", total, " rows of ", rows);
  return elements;
}

}  // namespace

HostsBackend::HostsBackend(c10::intrusive_ptr<Options> options, c10::intrusive_ptr<c10d::Backend> gloo,
                           const shm::HostGroups& groups)
    : c10d::Backend(gloo->getRank(), gloo->getSize()),
      options_(std::move(options)),
      gloo_(std::move(gloo)),
      hosts_(make_hosts_transport(groups, make_mail_office(gloo_, room_), queue_, options_->timeout)),
      identity_(std::make_shared<Identity>(options_->group_name, options_->global_ranks_in_group)) {
  init();
}

HostsBackend::~HostsBackend() { room_.lifelines->leave(); }

// The call keeps what it needs, because the thread may run it after the backend is gone.
WorkPtr HostsBackend::launch(const Call& call, const Tensors& inputs, const Tensors& outputs,
                             std::function<void(Transport&)> body) {
  const char* name = call.title + sizeof("shardway:") - 1;
  TORCH_CHECK_WITH(DistBackendError, !is_destroyed_, name, ": the group was destroyed (rank ", rank_, ")");
  for (const Tensors* tensors : {&inputs, &outputs}) {
    for (const at::Tensor& t : *tensors)
      TORCH_CHECK_VALUE(t.is_cpu(), name, ": the tensor is on ", t.device(),
                        ", but the group moves CPU tensors only");
  }
  auto work = c10::make_intrusive<CallWork>(rank_, call.type, call.title, identity_, inputs, outputs,
                                            ++sequence_number_);
  auto run = [transport = hosts_.transport, identity = identity_, body = std::move(body)] {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    identity->explain([&] { body(*transport); });
  };
  // A call made by a callback of a future runs at once, because the callback may wait for it.
  if (!call.is_async || queue_->is_own_thread()) {
    run();
    work->complete(nullptr);
    return work;
  }
  queue_->post([run = std::move(run), work] {
    try {
      run();
      work->complete(nullptr);
    } catch (...) {
      work->complete(std::current_exception());
    }
  });
  return work;
}

WorkPtr HostsBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const at::Tensor t = only("broadcast", tensors);
  check_root("broadcast", opts.rootRank);
  return launch({OpType::BROADCAST, "shardway:broadcast", opts.asyncOp}, tensors, tensors,
                [t, root = opts.rootRank](Transport& group) { backend::broadcast(group, t, root); });
}

WorkPtr HostsBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const at::Tensor t = only("all_reduce", tensors);
  const auto op = t.is_sparse() ? std::nullopt : op_of(opts.reduceOp, t);
  if (!op) return gloo_->allreduce(tensors, opts);
  return launch({OpType::ALLREDUCE, "shardway:all_reduce", opts.asyncOp}, tensors, tensors,
                [t, op = *op](Transport& group) { all_reduce(group, t, op); });
}

WorkPtr HostsBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  std::vector<Op> ops;
  for (const at::Tensor& t : tensors) {
    const auto op = op_of(opts.reduceOp, t);
    if (!op) return gloo_->allreduce_coalesced(tensors, opts);
    ops.push_back(*op);
  }
  return launch({OpType::ALLREDUCE_COALESCED, "shardway:all_reduce", opts.asyncOp}, tensors, tensors,
                [tensors, ops](Transport& group) {
                  for (size_t i = 0; i < tensors.size(); ++i) all_reduce(group, tensors[i], ops[i]);
                });
}

WorkPtr HostsBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const at::Tensor t = only("reduce", tensors);
  check_root("reduce", opts.rootRank);
  const auto op = op_of(opts.reduceOp, t);
  if (!op) return gloo_->reduce(tensors, opts);
  return launch(
      {OpType::REDUCE, "shardway:reduce", opts.asyncOp}, tensors, tensors,
      [t, op = *op, root = opts.rootRank](Transport& group) { backend::reduce(group, t, op, root); });
}

WorkPtr HostsBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                const c10d::AllgatherOptions& opts) {
  const Tensors list = only("all_gather", outputs);
  const at::Tensor input = only("all_gather", inputs);
  check_list("all_gather", list, size_, input);
  return launch({OpType::ALLGATHER, "shardway:all_gather", opts.asyncOp}, inputs, list,
                [list, input](Transport& group) {
                  const ElementCounts sizes = sizes_of(list);
                  const at::Tensor run = at::empty({c10::sum_integers(sizes)}, input.options());
                  all_gather(group, run, input, sizes);
                  split_into(list, run);
                });
}

WorkPtr HostsBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                      const c10d::AllgatherOptions& opts) {
  return launch({OpType::_ALLGATHER_BASE, "shardway:_all_gather_base", opts.asyncOp}, {input}, {output},
                [output, input](Transport& group) { all_gather_single(group, output, input); });
}

WorkPtr HostsBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
  check_lengths("all_gather_into_tensor", outputs.size(), inputs.size());
  return launch({OpType::COALESCED, "shardway:_all_gather_base", opts.asyncOp}, inputs, outputs,
                [outputs, inputs](Transport& group) {
                  for (size_t i = 0; i < inputs.size(); ++i) all_gather_single(group, outputs[i], inputs[i]);
                });
}

WorkPtr HostsBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                     const c10d::ReduceScatterOptions& opts) {
  const at::Tensor output = only("reduce_scatter", outputs);
  const Tensors list = only("reduce_scatter", inputs);
  check_list("reduce_scatter", list, size_, output);
  const auto op = op_of(opts.reduceOp, output);
  if (!op) return gloo_->reduce_scatter(outputs, inputs, opts);
  return launch({OpType::REDUCE_SCATTER, "shardway:reduce_scatter", opts.asyncOp}, list, outputs,
                [output, list, op = *op](Transport& group) {
                  backend::reduce_scatter(group, output, joined(list), sizes_of(list), op);
                });
}

WorkPtr HostsBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::ReduceScatterOptions& opts) {
  const auto op = op_of(opts.reduceOp, output);
  if (!op) return gloo_->_reduce_scatter_base(output, input, opts);
  return launch(
      {OpType::_REDUCE_SCATTER_BASE, "shardway:_reduce_scatter_base", opts.asyncOp}, {input}, {output},
      [output, input, op = *op](Transport& group) { reduce_scatter_single(group, output, input, op); });
}

WorkPtr HostsBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::ReduceScatterOptions& opts) {
  check_lengths("reduce_scatter_tensor", outputs.size(), inputs.size());
  std::optional<Op> op = Op::sum;
  for (const at::Tensor& output : outputs) op = op_of(opts.reduceOp, output);
  if (!op) return gloo_->reduce_scatter_tensor_coalesced(outputs, inputs, opts);
  return launch({OpType::COALESCED, "shardway:_reduce_scatter_base", opts.asyncOp}, inputs, outputs,
                [outputs, inputs, op = *op](Transport& group) {
                  for (size_t i = 0; i < inputs.size(); ++i)
                    reduce_scatter_single(group, outputs[i], inputs[i], op);
                });
}

WorkPtr HostsBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                    std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                    const c10d::AllToAllOptions& opts) {
  return launch({OpType::ALLTOALL_BASE, "shardway:all_to_all", opts.asyncOp}, {input}, {output},
                [output, input, output_splits, input_splits](Transport& group) {
                  const ElementCounts recv = elements_of(output, output_splits, group.size());
                  const ElementCounts send = elements_of(input, input_splits, group.size());
                  into(output, [&](const at::Tensor& run) {
                    backend::all_to_all(group, run, input.reshape({-1}), recv, send);
                  });
                });
}

WorkPtr HostsBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  TORCH_CHECK_VALUE(!inputs.empty(), "all_to_all: an empty list for ", size_, " ranks");
  check_list("all_to_all", inputs, size_, inputs.front());
  check_list("all_to_all", outputs, size_, inputs.front());
  return launch({OpType::ALLTOALL, "shardway:all_to_all", opts.asyncOp}, inputs, outputs,
                [outputs, inputs](Transport& group) {
                  const ElementCounts recv = sizes_of(outputs);
                  const at::Tensor run = at::empty({c10::sum_integers(recv)}, outputs.front().options());
                  backend::all_to_all(group, run, joined(inputs), recv, sizes_of(inputs));
                  split_into(outputs, run);
                });
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

void HostsBackend::check_root(const char* name, int64_t root) const {
  TORCH_CHECK_VALUE(root >= 0 && root < size_, name, ": root ", root, " is not one of ", size_, " ranks");
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
