#include "ops/call/list.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "ops/call/arguments.h"
#include "ops/call/start.h"

namespace shardway {
namespace {

// Whether the ranks move a list without agreeing first: on a device, where the host would have to wait to
// hear the others, if every caller gave the sizes. The same on every rank.
bool skips_agreement(const at::Tensor& first, bool sizes_given, const Group& group) {
  return sizes_given && is_on_device(first, group) && !checks_every_call(first, group);
}

// Returns the inputs that came in the blocks, but none if only some ranks' did: then all of them move.
KnownInputs known_by_all(const Agreement& agreement) {
  KnownInputs known = agreement.known_inputs();
  const bool are_all =
      std::all_of(known.begin(), known.end(), [](const at::Tensor& x) { return x.defined(); });
  return are_all ? known : KnownInputs();
}

std::vector<Settled> settle(const std::vector<Call>& calls, const Group& group, bool sizes_given) {
  const Call& first = calls[0];
  const char* name = name_of(first.collective);
  std::vector<Settled> settled;
  if (named(name, [&] { return skips_agreement(first.x, sizes_given, group); })) {
    if (!first.problem.empty()) raise(name, first.problem, group.rank());
    for (const Call& call : calls) settled.push_back({.differentiable = call.requires_grad()});
    return settled;
  }
  for (Agreement& agreement : agree(calls, group)) {
    const bool differentiable = agreement.any_requires_grad();
    KnownInputs known = known_by_all(agreement);
    settled.push_back(
        {.agreement = std::move(agreement), .differentiable = differentiable, .known = std::move(known)});
  }
  return settled;
}

RaggedList passed_through(const std::vector<Call>& calls, const Group& group) {
  if (!calls[0].problem.empty()) raise(name_of(calls[0].collective), calls[0].problem, group.rank());
  RaggedList same;
  for (const Call& call : calls) {
    same.tensors.push_back(call.x);
    same.sizes.push_back({call.x.size(call.dim)});
  }
  return same;
}

}  // namespace

std::vector<Call> read_list(Collective collective, const std::vector<at::Tensor>& xs,
                            const std::function<Call(size_t index)>& read,
                            const std::vector<Entries>& arguments) {
  std::vector<Call> calls;
  const std::string problem = problem_in([&] {
    if (xs.empty()) throw BadArgument("x is an empty list");
    for (const Entries& entries : arguments) {
      if (entries.count != xs.size())
        throw BadArgument(
            c10::str(entries.name, " has ", entries.count, " entries for ", xs.size(), " tensors"));
    }
    for (size_t i = 0; i < xs.size(); ++i) {
      Call& call = calls.emplace_back(read(i));
      call.list_length = static_cast<int64_t>(xs.size());
      if (!call.problem.empty()) throw BadArgument(c10::str("x[", i, "]: ", call.problem));
      if (xs[i].device() != xs[0].device())
        throw BadArgument(
            c10::str("x[", i, "]: x[0] is on ", xs[0].device(), ", but this on ", xs[i].device()));
    }
  });
  if (problem.empty()) return calls;
  Call wrong{.collective = collective, .list_length = 1, .problem = problem};
  if (!xs.empty()) wrong.x = xs[0];  // the other ranks' tensors are on such a device too
  return {wrong};
}

Async<RaggedList> start_list(
    const std::vector<Call>& calls, const Group& group, bool sizes_given,
    const std::function<Launch(size_t index, const Call& call, Settled& settled)>& decide) {
  if (!group.distributed()) return Async<RaggedList>(passed_through(calls, group));
  std::vector<Settled> settled = settle(calls, group, sizes_given);
  std::vector<Launch> launches;
  std::vector<Sizes> sizes;
  for (size_t i = 0; i < settled.size(); ++i) {
    launches.push_back(decide(i, calls[std::min(i, calls.size() - 1)], settled[i]));
    sizes.push_back(launches.back().sizes);
  }
  const Async<std::vector<at::Tensor>> tensors = launch_all(std::move(launches), group);
  auto finish = [tensors, sizes = std::move(sizes)] {
    return RaggedList{.tensors = tensors.wait(), .sizes = sizes};
  };
  return Async<RaggedList>(std::move(finish), [tensors] { return tensors.is_completed(); });
}

Async<std::vector<at::Tensor>> as_tensors(const Async<RaggedList>& list) {
  return Async<std::vector<at::Tensor>>([list] { return list.wait().tensors; },
                                        [list] { return list.is_completed(); });
}

void fail_list_together(Collective collective, const std::string& problem, const Group& group,
                        bool sizes_known, const std::vector<at::Tensor>& xs) {
  const at::Tensor first = xs.empty() ? at::Tensor() : xs[0];
  const bool compares = group.distributed() && !named(name_of(collective), [&] {
                          return skips_agreement(first, sizes_known, group);
                        });
  if (compares)
    agree(std::vector{Call{.collective = collective, .list_length = 1, .problem = problem}}, group);
  raise(name_of(collective), problem, group.rank());
}

}  // namespace shardway
