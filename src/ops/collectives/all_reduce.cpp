#include <ATen/core/Tensor.h>

#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/launch.h"
#include "ops/call/ragged.h"
#include "ops/call/recording.h"
#include "ops/call/start.h"

namespace shardway {
namespace {

Call read_call(const at::Tensor& x, const AllReduceOptions& options) {
  constexpr int64_t kNoDim = -1;
  Call call{.collective = Collective::all_reduce, .x = x, .op = options.op, .grad = options.grad};
  call.problem = problem_in([&] {
    check_movable(x, options.group);
    check_reduction(x, options.op);
    if (options.out) check_out(*options.out, x, kNoDim);
  });
  return call;
}

}  // namespace

Async<at::Tensor> start_all_reduce(const at::Tensor& x, const AllReduceOptions& options, Progress progress) {
  const Group& group = options.group;
  Call call = read_call(x, options);
  if (!group.distributed()) return pass_through(call, options.out, group);

  const bool is_known = named("all_reduce", [&] { return skips_exchange(x, group); });
  Route route;
  RouteCall leg;
  if (call.problem.empty()) {
    route = all_reduce_route(x.sizes().vec(), group.rank(), group.size(), options.op);
    leg = {&route, materialized(x), options.out ? *options.out : fresh_output(route, x)};
    call.leg = &leg;
  }
  return run_call(call, group, is_known, [&](Settled& settled) {
    Launch run{.x = x,
               .collective = Collective::all_reduce,
               .number = settled.number(),
               .forward = route,
               .differentiable = settled.differentiable,
               .out = options.out,
               .fresh = leg.out,
               .known = std::move(settled.known),
               .progress = progress};
    if (run.differentiable) run.backward = gradient_route(run.forward, options.grad);
    if (options.grad == Grad::local) run.differentiable = call.requires_grad();
    return run;
  });
}

Async<at::Tensor> all_reduce_async(const at::Tensor& x, const AllReduceOptions& options) {
  const Recording recording("all_reduce", x);
  options.group.check_meant("all_reduce");
  return start_on_its_way<at::Tensor>("all_reduce", x, options.group, [=](Progress progress) {
    return start_all_reduce(x, options, progress);
  });
}

at::Tensor all_reduce(const at::Tensor& x, const AllReduceOptions& options) {
  const Recording recording("all_reduce", x);
  options.group.check_meant("all_reduce");
  return start_all_reduce(x, options, Progress::by_caller).wait();
}

}  // namespace shardway
