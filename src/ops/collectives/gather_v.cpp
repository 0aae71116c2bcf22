#include <ATen/ATen.h>

#include "ops/call/agreed_sizes.h"
#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/launch.h"
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

}  // namespace

Sizes agreed_sizes(const at::Tensor& x, const GatherOptions& options) {
  return settle(read_call(x, options), options.group, /*sizes_known=*/false).sizes_along_dim(options.group);
}

Async<Ragged> start_gather_v(const at::Tensor& x, const GatherOptions& options, Progress progress) {
  const Group& group = options.group;
  const Call call = read_call(x, options);
  if (!group.distributed()) return pass_through_ragged(call, /*out=*/std::nullopt, group);

  Sizes sizes;
  auto gathered = run_call(call, group, options.sizes.has_value(), [&](Settled& settled) {
    sizes = options.sizes ? *options.sizes : settled.sizes_along_dim(group);
    agreed_total(call, sizes);
    const Split split{.shape = x.sizes().vec(), .dim = call.dim, .sizes = sizes};
    Launch run{.x = x,
               .collective = Collective::gather_v,
               .number = settled.number(),
               .forward = gather_route(split, group.rank(), call.root),
               .differentiable = settled.differentiable,
               .known = std::move(settled.known),
               .progress = progress};
    if (run.differentiable) run.backward = transposed(run.forward);
    return run;
  });
  return as_ragged(std::move(gathered), sizes);
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

}  // namespace shardway
