#include <ATen/core/Tensor.h>

#include "ops/call/agreed_sizes.h"
#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/launch.h"
#include "ops/call/list.h"
#include "ops/call/ragged.h"
#include "ops/call/recording.h"
#include "ops/call/start.h"
#include "transport/memory/tensors.h"

namespace shardway {
namespace {

// Reads what only src brings.
void read_source(Call& call, const std::optional<at::Tensor>& x, const ScatterOptions& options) {
  if (!x) throw BadArgument("x is None, but this rank is src");
  call.x = *x;
  call.dim = checked_dim(*x, options.dim, options.group);
  if (options.sizes) check_split("sizes", *options.sizes, *x, call.dim, options.group);
  call.sizes = options.sizes ? *options.sizes : chunk_sizes(x->size(call.dim), options.group.size());
  if (call.requires_grad() && at::isFloat8Type(x->scalar_type())) check_reduction(*x, Op::sum);
}

Call read_call(const std::optional<at::Tensor>& x, const ScatterOptions& options) {
  Call call{.collective = Collective::scatter_v, .dim = options.dim};
  call.problem = problem_in([&] {
    call.root = checked_root("src", options.src, options.group_src, options.group);
    if (call.root == options.group.rank()) read_source(call, x, options);
  });
  return call;
}

// Returns the tensor to which the gradient of the result leads. On the ranks that bring nothing it has no
// rows, and may be the caller's.
at::Tensor input_of(const Call& call, const std::optional<at::Tensor>& x, const Agreement& told,
                    const Route& route) {
  if (call.x.defined()) return call.x;
  const auto dtype = told.dtype_on(call.root);
  const auto device = told.device_on(call.root);
  const bool is_anchor = x && x->defined() && x->sizes() == at::IntArrayRef(route.input_shape) &&
                         x->scalar_type() == dtype && x->device().type() == device;
  return is_anchor ? *x : empty_tensor(route.input_shape, at::dtype(dtype).device(device));
}

Launch launch_of(const Call& call, const std::optional<at::Tensor>& x, const ScatterOptions& options,
                 Settled& settled, Progress progress) {
  const Agreement& told = *settled.agreement;
  const Split split{
      .shape = told.shape_on(call.root), .dim = told.dim_on(call.root), .sizes = told.send_sizes(call.root)};
  Launch run{.collective = Collective::scatter_v,
             .number = settled.number(),
             .forward = scatter_route(split, options.group.rank(), call.root),
             .differentiable = settled.differentiable,
             .known = std::move(settled.known),
             .progress = progress,
             .sizes = split.sizes,
             .whole_elements = Box::whole(split.shape).volume()};
  if (run.differentiable) run.backward = transposed(run.forward);
  run.x = input_of(call, x, told, run.forward);
  return run;
}

ScatterOptions options_of(const ScatterListOptions& options, size_t index) {
  ScatterOptions of_one{
      .src = options.src, .group_src = options.group_src, .dim = options.dim, .group = options.group};
  if (options.sizes && index < options.sizes->size()) of_one.sizes = (*options.sizes)[index];
  return of_one;
}

// Returns the calls of a list. A rank that is not src has a single call, since it brings nothing.
std::vector<Call> read_calls(const std::vector<at::Tensor>& xs, const ScatterListOptions& options) {
  Call first = read_call(std::nullopt, options_of(options, 0));
  if (options.group.distributed() && first.root != options.group.rank()) {  // also if src is invalid
    first.list_length = -1;
    return {first};
  }
  const auto read = [&](size_t i) { return read_call(xs[i], options_of(options, i)); };
  const std::vector<Entries> entries = {
      {.name = "sizes", .count = options.sizes ? options.sizes->size() : xs.size()}};
  return read_list(Collective::scatter_v, xs, read, entries);
}

}  // namespace

Sizes agreed_sizes(const at::Tensor& x, const ScatterOptions& options) {
  const Call call = read_call(x, options);
  return settle(call, options.group, /*sizes_known=*/false).agreement->send_sizes(call.root);
}

Async<at::Tensor> start_scatter_v(const std::optional<at::Tensor>& x, const ScatterOptions& options,
                                  Progress progress) {
  const Group& group = options.group;
  const Call call = read_call(x, options);
  if (!group.distributed()) return pass_through(call, /*out=*/std::nullopt, group);
  return run_call(call, group, /*sizes_known=*/false,
                  [&](Settled& settled) { return launch_of(call, x, options, settled, progress); });
}

Async<std::vector<at::Tensor>> start_scatter_v(const std::vector<at::Tensor>& xs,
                                               const ScatterListOptions& options, Progress progress) {
  const auto decide = [&](size_t i, const Call& call, Settled& settled) {
    const auto x = i < xs.size() ? std::optional(xs[i]) : std::nullopt;
    return launch_of(call, x, options_of(options, i), settled, progress);
  };
  return as_tensors(start_list(read_calls(xs, options), options.group, /*sizes_given=*/false, decide));
}

Async<at::Tensor> scatter_v_async(const std::optional<at::Tensor>& x, const ScatterOptions& options) {
  const Recording recording("scatter_v", x.value_or(at::Tensor()), options.sizes);
  options.group.check_meant("scatter_v");
  return start_by_itself<at::Tensor>(
      "scatter_v", x.value_or(at::Tensor()), options.group, /*sizes_known=*/false,
      [=](Progress progress) { return start_scatter_v(x, options, progress); });
}

at::Tensor scatter_v(const std::optional<at::Tensor>& x, const ScatterOptions& options) {
  const Recording recording("scatter_v", x.value_or(at::Tensor()), options.sizes);
  options.group.check_meant("scatter_v");
  return start_scatter_v(x, options, Progress::by_caller).wait();
}

Async<std::vector<at::Tensor>> scatter_v_async(const std::vector<at::Tensor>& xs,
                                               const ScatterListOptions& options) {
  const Recording recording("scatter_v", xs);
  options.group.check_meant("scatter_v");
  return start_scatter_v(xs, options, Progress::by_itself);
}

std::vector<at::Tensor> scatter_v(const std::vector<at::Tensor>& xs, const ScatterListOptions& options) {
  const Recording recording("scatter_v", xs);
  options.group.check_meant("scatter_v");
  return start_scatter_v(xs, options, Progress::by_caller).wait();
}

}  // namespace shardway
