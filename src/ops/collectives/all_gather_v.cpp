#include <ATen/core/Tensor.h>

#include "ops/call/agreed_sizes.h"
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

Launch launch_of(const Call& call, const AllGatherOptions& options, Settled& settled, Progress progress) {
  const Group& group = options.group;
  Sizes sizes = options.sizes ? *options.sizes : settled.sizes_along_dim(group);
  const int64_t total = agreed_total(call, sizes);
  check_out_sizes(call, settled, group, [&](int64_t) { return total; });
  const Split split{.shape = call.x.sizes().vec(), .dim = call.dim, .sizes = sizes};
  Launch run{.x = call.x,
             .collective = Collective::all_gather_v,
             .number = settled.number(),
             .forward = all_gather_route(split, group.rank()),
             .differentiable = settled.differentiable,
             .out = options.out,
             .known = std::move(settled.known),
             .progress = progress,
             .sizes = std::move(sizes),
             .whole_elements = whole_elements(call.x, call.dim, total)};
  if (run.differentiable) run.backward = gradient_route(run.forward, options.grad);
  if (options.grad == Grad::local) run.differentiable = call.requires_grad();
  return run;
}

AllGatherOptions options_of(const AllGatherListOptions& options, size_t index) {
  AllGatherOptions of_one{.dim = options.dim, .grad = options.grad, .group = options.group};
  if (options.sizes) of_one.sizes = options.sizes->at(index);
  return of_one;
}

}  // namespace

Sizes agreed_sizes(const at::Tensor& x, const AllGatherOptions& options) {
  return settle(read_call(x, options), options.group, /*sizes_known=*/false).sizes_along_dim(options.group);
}

Async<Ragged> start_all_gather_v(const at::Tensor& x, const AllGatherOptions& options, Progress progress) {
  const Group& group = options.group;
  const Call call = read_call(x, options);
  if (!group.distributed()) return pass_through_ragged(call, options.out, group);
  return run_ragged(call, group, options.sizes.has_value(),
                    [&](Settled& settled) { return launch_of(call, options, settled, progress); });
}

Async<RaggedList> start_all_gather_v(const std::vector<at::Tensor>& xs, const AllGatherListOptions& options,
                                     Progress progress) {
  const auto read = [&](size_t i) { return read_call(xs[i], options_of(options, i)); };
  const auto decide = [&](size_t i, const Call& call, Settled& settled) {
    return launch_of(call, options_of(options, i), settled, progress);
  };
  const std::vector<Entries> entries = {
      {.name = "sizes", .count = options.sizes ? options.sizes->size() : xs.size()}};
  return start_list(read_list(Collective::all_gather_v, xs, read, entries), options.group,
                    options.sizes.has_value(), decide);
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
  const KeptCallKey key{.collective = Collective::all_gather_v,
                        .grad = static_cast<uint8_t>(options.grad),
                        .dim = options.dim,
                        .x = x,
                        .out = options.out ? &*options.out : nullptr,
                        .sizes = options.sizes ? &*options.sizes : nullptr};
  const auto read = [&] { return read_call(x, options); };
  const auto decide = [&](const Call& call, Settled& settled) {
    return launch_of(call, options, settled, Progress::by_caller);
  };
  if (auto made = made_again(key, options.group, read, decide)) return *std::move(made);
  return start_all_gather_v(x, options, Progress::by_caller).wait();
}

Async<RaggedList> all_gather_v_async(const std::vector<at::Tensor>& xs, const AllGatherListOptions& options) {
  const Recording recording("all_gather_v", xs);
  options.group.check_meant("all_gather_v");
  return start_all_gather_v(xs, options, Progress::by_itself);
}

RaggedList all_gather_v(const std::vector<at::Tensor>& xs, const AllGatherListOptions& options) {
  const Recording recording("all_gather_v", xs);
  options.group.check_meant("all_gather_v");
  return start_all_gather_v(xs, options, Progress::by_caller).wait();
}

}  // namespace shardway
