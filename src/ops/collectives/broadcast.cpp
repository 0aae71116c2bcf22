#include <ATen/core/Tensor.h>

#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/launch.h"
#include "ops/call/ragged.h"
#include "ops/call/recording.h"
#include "ops/call/start.h"

namespace shardway {
namespace {

Call read_call(const at::Tensor& x, const BroadcastOptions& options) {
  Call call{.collective = Collective::broadcast, .x = x};
  call.problem = problem_in([&] {
    call.root = checked_root("src", options.src, options.group_src, options.group);
    check_movable(x, options.group);
    if (call.requires_grad()) check_reduction(x, Op::sum);
  });
  return call;
}

}  // namespace

Async<at::Tensor> start_broadcast(const at::Tensor& x, const BroadcastOptions& options, Progress progress) {
  const Group& group = options.group;
  const Call call = read_call(x, options);
  if (!group.distributed()) return pass_through(call, /*out=*/std::nullopt, group);

  const bool is_known = named("broadcast", [&] { return skips_exchange(x, group); });
  return run_call(call, group, is_known, [&](Settled& settled) {
    Launch run{.x = x,
               .collective = Collective::broadcast,
               .number = settled.number(),
               .forward = broadcast_route(x.sizes().vec(), group.rank(), group.size(), call.root),
               .differentiable = settled.differentiable,
               .known = std::move(settled.known),
               .progress = progress};
    if (run.differentiable) run.backward = transposed(run.forward);
    return run;
  });
}

Async<at::Tensor> broadcast_async(const at::Tensor& x, const BroadcastOptions& options) {
  const Recording recording("broadcast", x);
  options.group.check_meant("broadcast");
  return start_on_its_way<at::Tensor>("broadcast", x, options.group, [=](Progress progress) {
    return start_broadcast(x, options, progress);
  });
}

at::Tensor broadcast(const at::Tensor& x, const BroadcastOptions& options) {
  const Recording recording("broadcast", x);
  options.group.check_meant("broadcast");
  return start_broadcast(x, options, Progress::by_caller).wait();
}

}  // namespace shardway
