#include "ops/call/ragged.h"

#include <ATen/core/Tensor.h>

#include "ops/call/agreed_sizes.h"
#include "ops/call/arguments.h"
#include "ops/call/recording.h"

namespace shardway {

Sizes Settled::sizes_along_dim(const Group& group) const {
  Sizes sizes;
  for (int64_t rank = 0; rank < group.size(); ++rank) sizes.push_back(agreement->size_along_dim(rank));
  return sizes;
}

Settled settled_by(Agreement agreement) {
  Settled settled{.agreement = std::move(agreement)};
  settled.differentiable = settled.agreement->any_requires_grad();
  return settled;
}

Settled settle(const Call& call, const Group& group, bool sizes_known) {
  const char* name = name_of(call.collective);
  if (sizes_known && !named(name, [&] { return checks_every_call(call.x, group); })) {
    if (!call.problem.empty()) raise(name, call.problem, group.rank());
    return {.differentiable = call.requires_grad()};
  }
  Settled settled = settled_by(agree(call, group));
  settled.known = settled.agreement->known_inputs();
  return settled;
}

Async<at::Tensor> run_call(const Call& call, const Group& group, bool sizes_known,
                           const std::function<Launch(Settled&)>& decide) {
  const auto is_one_meeting = [&] { return group.transport().moves_in_meeting(call.x); };
  if (named(name_of(call.collective), is_one_meeting)) {
    const auto decide_here = [&](Agreement agreement) {
      Settled settled = settled_by(std::move(agreement));
      return decide(settled);
    };
    return launch_in_meeting(call, decide_here, group);
  }
  Settled settled = settle(call, group, sizes_known);
  return launch(decide(settled), group);
}

void read_out(Call& call, const std::optional<at::Tensor>& out) {
  if (!out) return;
  check_out(*out, call.x, call.dim);
  call.out_size = out->size(call.dim);
}

void check_out_sizes(const Call& call, const Settled& settled, const Group& group,
                     const std::function<int64_t(int64_t rank)>& expected) {
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    if (!settled.agreement && rank != group.rank()) continue;
    const int64_t given = settled.agreement ? settled.agreement->out_size(rank) : call.out_size;
    if (given >= 0 && given != expected(rank)) {
      raise(name_of(call.collective),
            c10::str("out has extent ", given, " along dim ", call.dim, ", but the result has ",
                     expected(rank)),
            rank);
    }
  }
}

Async<at::Tensor> pass_through(const Call& call, const std::optional<at::Tensor>& out, const Group& group) {
  if (!call.problem.empty()) raise(name_of(call.collective), call.problem, group.rank());
  if (out) {
    check_out_sizes(call, {}, group, [&](int64_t) { return call.x.size(call.dim); });
    const at::Tensor taken = out->detach();  // so that the caller's own tensor stays a plain one
    taken.copy_(call.x);
    return Async<at::Tensor>(call.requires_grad() ? taken : *out);
  }
  return Async<at::Tensor>(call.x);
}

int64_t agreed_total(const Call& call, const Sizes& sizes) {
  int64_t total = 0;
  const std::string problem = problem_in([&] { total = checked_total("sizes", sizes, call.x, call.dim); });
  TORCH_CHECK_VALUE(problem.empty(), name_of(call.collective), ": ", problem);
  return total;
}

Async<Ragged> as_ragged(const Async<at::Tensor>& result, Sizes sizes) {
  auto finish = [result, sizes = std::move(sizes)] {
    return Ragged{.tensor = result.wait(), .sizes = sizes};
  };
  return Async<Ragged>(std::move(finish), [result] { return result.is_completed(); });
}

Async<Ragged> pass_through_ragged(const Call& call, const std::optional<at::Tensor>& out,
                                  const Group& group) {
  const Async<at::Tensor> passed = pass_through(call, out, group);  // checks the call first
  return as_ragged(passed, {call.x.size(call.dim)});
}

int64_t whole_elements(const at::Tensor& x, int64_t dim, int64_t rows) {
  int64_t elements = rows;
  for (int64_t d = 0; d < x.dim(); ++d) elements *= d == dim ? 1 : x.size(d);
  return elements;
}

Sizes gather_sizes(const at::Tensor& x, const GatherSizesOptions& options) {
  const Recording recording("gather_sizes", x);
  options.group.check_meant("gather_sizes");
  return agreed_sizes(x, options);
}

Sizes agreed_sizes(const at::Tensor& x, const GatherSizesOptions& options) {
  Call call{.collective = Collective::gather_sizes, .x = x};
  call.problem = problem_in([&] { call.dim = checked_dim(x, options.dim, options.group); });
  if (options.group.distributed())
    return settle(call, options.group, /*sizes_known=*/false).sizes_along_dim(options.group);
  if (!call.problem.empty()) raise("gather_sizes", call.problem, options.group.rank());
  return {x.size(call.dim)};
}

Ragged split_by_rank(const std::vector<at::Tensor>& parts, const Group& group) {
  group.check_meant("split_by_rank");
  if (static_cast<int64_t>(parts.size()) != group.size()) {
    raise("split_by_rank",
          c10::str("there are ", parts.size(), " parts for ", group.size(),
                   group.size() == 1 ? " rank" : " ranks"),
          group.rank());
  }
  Sizes sizes;
  for (size_t r = 0; r < parts.size(); ++r) {
    if (!parts[r].defined() || parts[r].dim() == 0)
      raise("split_by_rank", c10::str("part ", r, " is a 0-d tensor and has no rows"), group.rank());
    sizes.push_back(parts[r].size(0));
  }
  return {.tensor = parts[static_cast<size_t>(group.rank())], .sizes = std::move(sizes)};
}

Ragged split_by_rank(const at::Tensor& parts, const Group& group) {
  if (!parts.defined() || parts.dim() < 2) {
    raise("split_by_rank", "a tensor of parts needs the ranks along dim 0 and rows along dim 1",
          group.rank());
  }
  return split_by_rank(parts.unbind(0), group);
}

}  // namespace shardway
