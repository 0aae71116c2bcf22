#include <ATen/core/Tensor.h>

#include "ops/call/agreed_sizes.h"
#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/launch.h"
#include "ops/call/list.h"
#include "ops/call/ragged.h"
#include "ops/call/recording.h"
#include "ops/call/start.h"

namespace shardway {
namespace {

Call read_call(const at::Tensor& x, const GatherOptions& options) {
  Call call{.collective = Collective::gather_v, .x = x};
  call.problem = problem_in([&] {
    call.root = checked_root("dst", options.dst, options.group_dst, options.group);
    call.dim = checked_dim(x, options.dim, options.group);
    if (options.sizes) {
      check_gathered(*options.sizes, x, call.dim, options.group);
      call.sizes = *options.sizes;
    }
    if (call.requires_grad() && at::isFloat8Type(x.scalar_type())) check_reduction(x, Op::sum);
  });
  return call;
}

Launch launch_of(const Call& call, const GatherOptions& options, Settled& settled, Progress progress) {
  const Group& group = options.group;
  Sizes sizes = options.sizes ? *options.sizes : settled.sizes_along_dim(group);
  const int64_t total = agreed_total(call, sizes);
  const Split split{.shape = call.x.sizes().vec(), .dim = call.dim, .sizes = sizes};
  Launch run{.x = call.x,
             .collective = Collective::gather_v,
             .number = settled.number(),
             .forward = gather_route(split, group.rank(), call.root),
             .differentiable = settled.differentiable,
             .known = std::move(settled.known),
             .progress = progress,
             .sizes = std::move(sizes),
             .whole_elements = whole_elements(call.x, call.dim, total)};
  if (run.differentiable) run.backward = transposed(run.forward);
  return run;
}

GatherOptions options_of(const GatherListOptions& options, size_t index) {
  GatherOptions of_one{
      .dst = options.dst, .group_dst = options.group_dst, .dim = options.dim, .group = options.group};
  if (options.sizes) of_one.sizes = options.sizes->at(index);
  return of_one;
}

}  // namespace

Sizes agreed_sizes(const at::Tensor& x, const GatherOptions& options) {
  return settle(read_call(x, options), options.group, /*sizes_known=*/false).sizes_along_dim(options.group);
}

Async<Ragged> start_gather_v(const at::Tensor& x, const GatherOptions& options, Progress progress) {
  const Group& group = options.group;
  const Call call = read_call(x, options);
  if (!group.distributed()) return pass_through_ragged(call, /*out=*/std::nullopt, group);
  return run_ragged(call, group, options.sizes.has_value(),
                    [&](Settled& settled) { return launch_of(call, options, settled, progress); });
}

Async<RaggedList> start_gather_v(const std::vector<at::Tensor>& xs, const GatherListOptions& options,
                                 Progress progress) {
  Call rootless{.collective = Collective::gather_v, .list_length = 1};
  rootless.problem = problem_in([&] { checked_root("dst", options.dst, options.group_dst, options.group); });
  const auto read = [&](size_t i) { return read_call(xs[i], options_of(options, i)); };
  const auto decide = [&](size_t i, const Call& call, Settled& settled) {
    return launch_of(call, options_of(options, i), settled, progress);
  };
  const std::vector<Entries> entries = {
      {.name = "sizes", .count = options.sizes ? options.sizes->size() : xs.size()}};
  const bool has_root = rootless.problem.empty();
  return start_list(has_root ? read_list(Collective::gather_v, xs, read, entries) : std::vector{rootless},
                    options.group, options.sizes.has_value(), decide);
}

Async<Ragged> gather_v_async(const at::Tensor& x, const GatherOptions& options) {
  const Recording recording("gather_v", x, options.sizes);
  options.group.check_meant("gather_v");
  return start_by_itself<Ragged>("gather_v", x, options.group, options.sizes.has_value(),
                                 [=](Progress progress) { return start_gather_v(x, options, progress); });
}

Ragged gather_v(const at::Tensor& x, const GatherOptions& options) {
  const Recording recording("gather_v", x, options.sizes);
  options.group.check_meant("gather_v");
  return start_gather_v(x, options, Progress::by_caller).wait();
}

Async<RaggedList> gather_v_async(const std::vector<at::Tensor>& xs, const GatherListOptions& options) {
  const Recording recording("gather_v", xs);
  options.group.check_meant("gather_v");
  return start_gather_v(xs, options, Progress::by_itself);
}

RaggedList gather_v(const std::vector<at::Tensor>& xs, const GatherListOptions& options) {
  const Recording recording("gather_v", xs);
  options.group.check_meant("gather_v");
  return start_gather_v(xs, options, Progress::by_caller).wait();
}

}  // namespace shardway
