// What the calls of lists have in common: each tensor has a call as if it were alone, and all move in one
// exchange.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "ops/call/header.h"
#include "ops/call/launch.h"
#include "ops/call/ragged.h"
#include "shardway/collectives.h"

namespace shardway {

// An argument that has an entry per tensor.
struct Entries {
  const char* name = "";
  size_t count = 0;
};

// Returns one call per tensor, as `read` understands it, or a single call that says what is wrong with the
// list.
std::vector<Call> read_list(Collective collective, const std::vector<at::Tensor>& xs,
                            const std::function<Call(size_t index)>& read,
                            const std::vector<Entries>& arguments);

// Agrees with the other ranks, and starts the routes that `decide` returns. Collective. Without a group,
// returns the tensors themselves.
Async<RaggedList> start_list(
    const std::vector<Call>& calls, const Group& group, bool sizes_given,
    const std::function<Launch(size_t index, const Call& call, Settled& settled)>& decide);

// The tensors alone.
Async<std::vector<at::Tensor>> as_tensors(const Async<RaggedList>& list);

}  // namespace shardway
