#include <ATen/core/Tensor.h>

#include <numeric>
#include <optional>

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

Call read_call(const at::Tensor& x, const Sizes& send_sizes, const AllToAllOptions& options) {
  Call call{.collective = Collective::all_to_all_v, .x = x};
  call.problem = problem_in([&] {
    call.dim = checked_dim(x, options.dim, options.group);
    check_split("send_sizes", send_sizes, x, call.dim, options.group);
    call.sizes = send_sizes;
    if (options.recv_sizes) {
      check_size_list("recv_sizes", *options.recv_sizes, options.group);
      checked_total("recv_sizes", *options.recv_sizes, x, call.dim);
      const auto own = static_cast<size_t>(options.group.rank());
      if ((*options.recv_sizes)[own] != send_sizes[own]) {
        throw BadArgument(c10::str("recv_sizes[", own, "]=", (*options.recv_sizes)[own],
                                   " is not what this rank sends to itself, ", send_sizes[own]));
      }
      call.recv_sizes = *options.recv_sizes;
    }
    if (call.requires_grad() && at::isFloat8Type(x.scalar_type())) check_reduction(x, Op::sum);
    read_out(call, options.out);
  });
  return call;
}

// Finds, from the sizes that all ranks send, what this rank receives and where the blocks lie on the other
// ranks.
AllToAllSizes sizes_seen_by(const Agreement& agreement, const Group& group) {
  AllToAllSizes sizes;
  const auto me = static_cast<size_t>(group.rank());
  // The rows of each rank's output that ranks before `from` fill.
  Sizes filled(static_cast<size_t>(group.size()), 0);
  sizes.offset_in_output.resize(filled.size());
  for (int64_t from = 0; from < group.size(); ++from) {
    const Sizes sent = agreement.send_sizes(from);
    sizes.recv.push_back(sent[me]);
    sizes.offset_in_input.push_back(std::accumulate(sent.begin(), sent.begin() + group.rank(), int64_t{0}));
    if (from == group.rank()) {
      sizes.send = sent;
      sizes.offset_in_output = filled;
    }
    for (size_t to = 0; to < filled.size(); ++to)
      TORCH_CHECK_VALUE(!__builtin_add_overflow(filled[to], sent[to], &filled[to]),
                        "all_to_all_v: the ranks send rank ", to, " more than 2^63 - 1 rows");
  }
  return sizes;
}

// Returns the number of rows that all ranks send, or nothing if it overflows.
std::optional<int64_t> rows_of_all(const Agreement& agreement, const Group& group) {
  int64_t rows = 0;
  for (int64_t from = 0; from < group.size(); ++from) {
    if (__builtin_add_overflow(rows, agreement.size_along_dim(from), &rows)) return std::nullopt;
  }
  return rows;
}

Launch launch_of(const Call& call, const AllToAllOptions& options, Settled& settled, Progress progress) {
  const Group& group = options.group;
  AllToAllSizes sizes{.send = call.sizes, .recv = call.recv_sizes};
  if (settled.agreement) sizes = sizes_seen_by(*settled.agreement, group);
  const int64_t total = agreed_total(call, sizes.recv);
  check_out_sizes(call, settled, group, [&](int64_t rank) {
    if (rank == group.rank()) return total;
    int64_t received = 0;
    for (int64_t from = 0; from < group.size(); ++from)
      received += settled.agreement->send_sizes(from)[static_cast<size_t>(rank)];
    return received;
  });
  Launch run{.x = call.x,
             .collective = Collective::all_to_all_v,
             .number = settled.number(),
             .forward = all_to_all_route(call.x.sizes().vec(), call.dim, sizes, group.rank()),
             .differentiable = settled.differentiable,
             .out = options.out,
             .known = std::move(settled.known),
             .progress = progress,
             .sizes = std::move(sizes.recv)};
  const auto rows = settled.agreement ? rows_of_all(*settled.agreement, group) : std::nullopt;
  if (rows) run.whole_elements = whole_elements(call.x, call.dim, *rows);
  if (run.differentiable) run.backward = transposed(run.forward);
  return run;
}

AllToAllOptions options_of(const AllToAllListOptions& options, size_t index) {
  AllToAllOptions of_one{.dim = options.dim, .group = options.group};
  if (options.recv_sizes) of_one.recv_sizes = options.recv_sizes->at(index);
  return of_one;
}

}  // namespace

Sizes agreed_sizes(const at::Tensor& x, const Sizes& send_sizes, const AllToAllOptions& options) {
  const Settled settled = settle(read_call(x, send_sizes, options), options.group, /*sizes_known=*/false);
  return sizes_seen_by(*settled.agreement, options.group).recv;
}

Async<Ragged> start_all_to_all_v(const at::Tensor& x, const Sizes& send_sizes, const AllToAllOptions& options,
                                 Progress progress) {
  const Group& group = options.group;
  const Call call = read_call(x, send_sizes, options);
  if (!group.distributed()) return pass_through_ragged(call, options.out, group);
  return run_ragged(call, group, options.recv_sizes.has_value(),
                    [&](Settled& settled) { return launch_of(call, options, settled, progress); });
}

Async<RaggedList> start_all_to_all_v(const std::vector<at::Tensor>& xs, const std::vector<Sizes>& send_sizes,
                                     const AllToAllListOptions& options, Progress progress) {
  const auto read = [&](size_t i) { return read_call(xs[i], send_sizes.at(i), options_of(options, i)); };
  const auto decide = [&](size_t i, const Call& call, Settled& settled) {
    return launch_of(call, options_of(options, i), settled, progress);
  };
  const std::vector<Entries> entries = {
      {.name = "send_sizes", .count = send_sizes.size()},
      {.name = "recv_sizes", .count = options.recv_sizes ? options.recv_sizes->size() : xs.size()}};
  return start_list(read_list(Collective::all_to_all_v, xs, read, entries), options.group,
                    options.recv_sizes.has_value(), decide);
}

Async<Ragged> all_to_all_v_async(const at::Tensor& x, const Sizes& send_sizes,
                                 const AllToAllOptions& options) {
  const Recording recording("all_to_all_v", x, send_sizes);
  options.group.check_meant("all_to_all_v");
  return start_by_itself<Ragged>(
      "all_to_all_v", x, options.group, options.recv_sizes.has_value(),
      [=](Progress progress) { return start_all_to_all_v(x, send_sizes, options, progress); });
}

Ragged all_to_all_v(const at::Tensor& x, const Sizes& send_sizes, const AllToAllOptions& options) {
  const Recording recording("all_to_all_v", x, send_sizes);
  options.group.check_meant("all_to_all_v");
  const KeptCallKey key{.collective = Collective::all_to_all_v,
                        .dim = options.dim,
                        .x = x,
                        .out = options.out ? &*options.out : nullptr,
                        .sizes = &send_sizes,
                        .recv_sizes = options.recv_sizes ? &*options.recv_sizes : nullptr};
  const auto read = [&] { return read_call(x, send_sizes, options); };
  const auto decide = [&](const Call& call, Settled& settled) {
    return launch_of(call, options, settled, Progress::by_caller);
  };
  if (auto made = made_again(key, options.group, read, decide)) return *std::move(made);
  return start_all_to_all_v(x, send_sizes, options, Progress::by_caller).wait();
}

Async<RaggedList> all_to_all_v_async(const std::vector<at::Tensor>& xs, const std::vector<Sizes>& send_sizes,
                                     const AllToAllListOptions& options) {
  const Recording recording("all_to_all_v", xs);
  options.group.check_meant("all_to_all_v");
  return start_all_to_all_v(xs, send_sizes, options, Progress::by_itself);
}

RaggedList all_to_all_v(const std::vector<at::Tensor>& xs, const std::vector<Sizes>& send_sizes,
                        const AllToAllListOptions& options) {
  const Recording recording("all_to_all_v", xs);
  options.group.check_meant("all_to_all_v");
  return start_all_to_all_v(xs, send_sizes, options, Progress::by_caller).wait();
}

}  // namespace shardway
