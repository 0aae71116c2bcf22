// What the ragged collectives have in common around their routes.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <utility>

#include "ops/call/header.h"
#include "ops/call/launch.h"
#include "shardway/collectives.h"

namespace shardway {

// What is known once the ranks have met, or if they need not meet.
struct Settled {
  std::optional<Agreement> agreement = std::nullopt;  // empty if nothing was exchanged
  bool differentiable = false;
  KnownInputs known = {};

  uint64_t number() const { return agreement ? agreement->number() : 0; }  // see Forward
  Sizes sizes_along_dim(const Group& group) const;
};

Settled settled_by(Agreement agreement);

// Exchanges headers if the sizes are not known to all ranks or if every call is checked. Throws
// c10::ValueError for the call's problem, on every rank if there was an exchange.
Settled settle(const Call& call, const Group& group, bool sizes_known);

// Agrees with the other ranks as settle does, and starts the route that `decide` then returns. Collective.
Async<at::Tensor> run_call(const Call& call, const Group& group, bool sizes_known,
                           const std::function<Launch(Settled&)>& decide);

// Checks the caller's `out`, if any, as far as possible without the sizes.
void read_out(Call& call, const std::optional<at::Tensor>& out);

// Throws c10::ValueError if a rank's `out`, as far as this rank knows it, does not have the extent along dim
// that the op's result has.
void check_out_sizes(const Call& call, const Settled& settled, const Group& group,
                     const std::function<int64_t(int64_t rank)>& expected);

// The result without a group: x itself, or `out` with a copy of x.
Async<at::Tensor> pass_through(const Call& call, const std::optional<at::Tensor>& out, const Group& group);

Async<Ragged> pass_through_ragged(const Call& call, const std::optional<at::Tensor>& out, const Group& group);

// Returns the extent along dim of a result of these sizes, which all ranks know. Throws the same
// c10::ValueError on every rank if no tensor can have that extent.
int64_t agreed_total(const Call& call, const Sizes& sizes);

// The number of elements of a tensor like x, but with `rows` rows along dim.
int64_t whole_elements(const at::Tensor& x, int64_t dim, int64_t rows);

Async<Ragged> as_ragged(const Async<at::Tensor>& result, Sizes sizes);

// Like run_call, but also returns the launch's sizes.
template <class Decide>
Async<Ragged> run_ragged(const Call& call, const Group& group, bool sizes_known, Decide&& decide) {
  Sizes sizes;
  const Async<at::Tensor> result = run_call(call, group, sizes_known, [&](Settled& settled) {
    Launch launch = decide(settled);
    sizes = std::move(launch.sizes);
    return launch;
  });
  return as_ragged(result, std::move(sizes));
}

}  // namespace shardway
