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

Call read_call(const at::Tensor& x, const AllGatherOptions& options) {
  Call call{.collective = Collective::all_gather_v, .x = x, .grad = options.grad};
  call.problem = problem_in([&] {
    call.dim = checked_dim(x, options.dim, options.group);
    if (options.sizes) {
      check_gathered(*options.sizes, x, call.dim, options.group);
      call.sizes = *options.sizes;
    }
    if (options.grad != Grad::local && call.requires_grad()) check_reduction(x, Op::sum);
    read_out(call, options.out);
  });
  return call;
}

}  // namespace

Sizes agreed_sizes(const at::Tensor& x, const AllGatherOptions& options) {
  return settle(read_call(x, options), options.group, /*sizes_known=*/false).sizes_along_dim(options.group);
}

Async<Ragged> start_all_gather_v(const at::Tensor& x, const AllGatherOptions& options, Progress progress,
                                 ParcelCall* parcel) {
  const Group& group = options.group;
  Call call = read_call(x, options);
  if (parcel != nullptr) mark_as_parcel(call, *parcel);
  if (!group.distributed()) return pass_through_ragged(call, options.out, group);

  Sizes sizes;
  auto gathered = run_call(call, group, options.sizes.has_value(), [&](Settled& settled) {
    if (parcel != nullptr) parcel->number = settled.number();
    sizes = options.sizes ? *options.sizes : settled.sizes_along_dim(group);
    const int64_t total = agreed_total(call, sizes);
    check_out_sizes(call, settled, group, [&](int64_t) { return total; });
    const Split split{.shape = x.sizes().vec(), .dim = call.dim, .sizes = sizes};
    Launch run{.x = x,
               .collective = Collective::all_gather_v,
               .number = settled.number(),
               .forward = all_gather_route(split, group.rank()),
               .differentiable = settled.differentiable,
               .out = options.out,
               .known = std::move(settled.known),
               .progress = progress};
    if (run.differentiable) run.backward = gradient_route(run.forward, options.grad);
    if (options.grad == Grad::local) run.differentiable = call.requires_grad();
    return run;
  });
  return as_ragged(std::move(gathered), sizes);
}

Async<Ragged> all_gather_v_async(const at::Tensor& x, const AllGatherOptions& options) {
  const Recording recording("all_gather_v", x, options.sizes);
  options.group.check_meant("all_gather_v");
  return start_by_itself<Ragged>("all_gather_v", x, options.group, options.sizes.has_value(),
                                 [=](Progress progress) { return start_all_gather_v(x, options, progress); });
}

Ragged all_gather_v(const at::Tensor& x, const AllGatherOptions& options) {
  const Recording recording("all_gather_v", x, options.sizes);
  options.group.check_meant("all_gather_v");
  return start_all_gather_v(x, options, Progress::by_caller).wait();
}

}  // namespace shardway
