#include <ATen/core/Tensor.h>

#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/launch.h"
#include "ops/call/list.h"
#include "ops/call/ragged.h"
#include "ops/call/recording.h"
#include "ops/call/start.h"
#include "ops/collectives/again.h"

namespace shardway {
namespace {

Call read_call(const at::Tensor& x, const ReduceScatterOptions& options) {
  Call call{.collective = Collective::reduce_scatter_v, .x = x, .op = options.op};
  call.problem = problem_in([&] {
    call.dim = checked_dim(x, options.dim, options.group);
    if (options.sizes) check_split("sizes", *options.sizes, x, call.dim, options.group);
    call.sizes = options.sizes ? *options.sizes : chunk_sizes(x.size(call.dim), options.group.size());
    check_reduction(x, options.op);
    read_out(call, options.out);
  });
  return call;
}

Launch launch_of(const Call& call, const ReduceScatterOptions& options, Settled& settled, Progress progress) {
  const Group& group = options.group;
  check_out_sizes(call, settled, group, [&](int64_t rank) { return call.sizes[static_cast<size_t>(rank)]; });
  const Split split{.shape = call.x.sizes().vec(), .dim = call.dim, .sizes = call.sizes};
  Launch run{.x = call.x,
             .collective = Collective::reduce_scatter_v,
             .number = settled.number(),
             .forward = reduce_scatter_route(split, group.rank(), options.op),
             .differentiable = settled.differentiable,
             .out = options.out,
             .known = std::move(settled.known),
             .progress = progress,
             .sizes = call.sizes,
             .whole_elements = call.x.numel()};
  if (run.differentiable) run.backward = transposed(run.forward);
  return run;
}

ReduceScatterOptions options_of(const ReduceScatterListOptions& options, size_t index) {
  ReduceScatterOptions of_one{.dim = options.dim, .op = options.op, .group = options.group};
  if (options.sizes) of_one.sizes = options.sizes->at(index);
  return of_one;
}

}  // namespace

Async<at::Tensor> start_reduce_scatter_v(const at::Tensor& x, const ReduceScatterOptions& options,
                                         Progress progress) {
  const Group& group = options.group;
  const Call call = read_call(x, options);
  if (!group.distributed()) return pass_through(call, options.out, group);
  return run_call(call, group, options.sizes.has_value(),
                  [&](Settled& settled) { return launch_of(call, options, settled, progress); });
}

Async<std::vector<at::Tensor>> start_reduce_scatter_v(const std::vector<at::Tensor>& xs,
                                                      const ReduceScatterListOptions& options,
                                                      Progress progress) {
  const auto read = [&](size_t i) { return read_call(xs[i], options_of(options, i)); };
  const auto decide = [&](size_t i, const Call& call, Settled& settled) {
    return launch_of(call, options_of(options, i), settled, progress);
  };
  const std::vector<Entries> entries = {
      {.name = "sizes", .count = options.sizes ? options.sizes->size() : xs.size()}};
  return as_tensors(start_list(read_list(Collective::reduce_scatter_v, xs, read, entries), options.group,
                               options.sizes.has_value(), decide));
}

Async<at::Tensor> reduce_scatter_v_async(const at::Tensor& x, const ReduceScatterOptions& options) {
  const Recording recording("reduce_scatter_v", x, options.sizes);
  options.group.check_meant("reduce_scatter_v");
  return start_by_itself<at::Tensor>(
      "reduce_scatter_v", x, options.group, options.sizes.has_value(),
      [=](Progress progress) { return start_reduce_scatter_v(x, options, progress); });
}

at::Tensor reduce_scatter_v(const at::Tensor& x, const ReduceScatterOptions& options) {
  const Recording recording("reduce_scatter_v", x, options.sizes);
  options.group.check_meant("reduce_scatter_v");
  const KeptCallKey key{.collective = Collective::reduce_scatter_v,
                        .op = options.op,
                        .dim = options.dim,
                        .x = x,
                        .out = options.out ? &*options.out : nullptr,
                        .sizes = options.sizes ? &*options.sizes : nullptr};
  const auto read = [&] { return read_call(x, options); };
  const auto decide = [&](const Call& call, Settled& settled) {
    return launch_of(call, options, settled, Progress::by_caller);
  };
  if (auto made = made_again(key, options.group, read, decide)) return std::move(made->tensor);
  return start_reduce_scatter_v(x, options, Progress::by_caller).wait();
}

Async<std::vector<at::Tensor>> reduce_scatter_v_async(const std::vector<at::Tensor>& xs,
                                                      const ReduceScatterListOptions& options) {
  const Recording recording("reduce_scatter_v", xs);
  options.group.check_meant("reduce_scatter_v");
  return start_reduce_scatter_v(xs, options, Progress::by_itself);
}

std::vector<at::Tensor> reduce_scatter_v(const std::vector<at::Tensor>& xs,
                                         const ReduceScatterListOptions& options) {
  const Recording recording("reduce_scatter_v", xs);
  options.group.check_meant("reduce_scatter_v");
  return start_reduce_scatter_v(xs, options, Progress::by_caller).wait();
}

}  // namespace shardway
