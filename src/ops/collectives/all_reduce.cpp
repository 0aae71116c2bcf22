#include <ATen/core/Tensor.h>

#include <optional>

#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/launch.h"
#include "ops/call/ragged.h"
#include "ops/call/recording.h"
#include "ops/call/start.h"
#include "ops/collectives/again.h"

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

// A call with its moves, which are known before the ranks meet. It is neither copied nor moved.
struct CallWithLeg {
  CallWithLeg(const at::Tensor& x, const AllReduceOptions& options) : call(read_call(x, options)) {
    if (!call.problem.empty() || !options.group.distributed()) return;
    route = all_reduce_route(x.sizes().vec(), options.group.rank(), options.group.size(), options.op);
    leg = {&route, materialized(x), options.out ? *options.out : fresh_output(route, x)};
    call.leg = &leg;
  }
  CallWithLeg(const CallWithLeg&) = delete;
  CallWithLeg& operator=(const CallWithLeg&) = delete;

  Call call;
  Route route = {};
  RouteCall leg = {};
};

Launch launch_of(const CallWithLeg& known, const AllReduceOptions& options, Settled& settled,
                 Progress progress) {
  Launch run{.x = known.call.x,
             .collective = Collective::all_reduce,
             .number = settled.number(),
             .forward = known.route,
             .differentiable = settled.differentiable,
             .out = options.out,
             .fresh = known.leg.out,
             .known = std::move(settled.known),
             .progress = progress};
  if (run.differentiable) run.backward = gradient_route(run.forward, options.grad);
  if (options.grad == Grad::local) run.differentiable = known.call.requires_grad();
  return run;
}

}  // namespace

Async<at::Tensor> start_all_reduce(const at::Tensor& x, const AllReduceOptions& options, Progress progress) {
  const Group& group = options.group;
  const CallWithLeg known(x, options);
  if (!group.distributed()) return pass_through(known.call, options.out, group);
  const bool is_known = named("all_reduce", [&] { return skips_exchange(x, group); });
  return run_call(known.call, group, is_known,
                  [&](Settled& settled) { return launch_of(known, options, settled, progress); });
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
  const KeptCallKey key{.collective = Collective::all_reduce,
                        .op = options.op,
                        .grad = static_cast<uint8_t>(options.grad),
                        .x = x,
                        .out = options.out ? &*options.out : nullptr};
  std::optional<CallWithLeg> known;
  const auto read = [&] { return known.emplace(x, options).call; };
  const auto decide = [&](const Call&, Settled& settled) {
    return launch_of(*known, options, settled, Progress::by_caller);
  };
  if (auto made = made_again(key, options.group, read, decide)) return std::move(made->tensor);
  return start_all_reduce(x, options, Progress::by_caller).wait();
}

}  // namespace shardway
