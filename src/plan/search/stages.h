// A plan as one rank runs it: a route or two per step, between the ranks of a group.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/geometry/group_ranks.h"
#include "shardway/plan.h"

namespace shardway {

// One step. The route fills `landing` of the step's output. An all_reduce is two routes: each rank combines
// its share of the box (all_reduce_shares.h) straight into its place in the output, and then collects the
// other shares from the others' outputs.
//
// Example, 2 ranks with an addend each of 4 rows, seen by rank 0:
//   route pulls rows [0,2) of both and lands on rows [0,2); collection pulls rows [2,4) from rank 1.
struct Stage {
  std::vector<int64_t> output_shape = {};
  Route route = {};
  Box landing = {};
  std::optional<Route> collection = std::nullopt;  // from the landing into the rest of the output
};

// The steps of a plan as rank `rank` of the group runs them. Every rank of the group has the same number of
// routes that communicate; a rank outside the meshes has routes with nothing in them. An all_reduce of boxes
// of up to `whole_up_to_bytes` is one route: every rank pulls all addends. An exchange that only combines
// addends where they lie becomes two routes if its boxes are large. Throws std::invalid_argument if the group
// does not cover the meshes, or if a step is not what it calls itself.
std::vector<Stage> stages_of(const Plan& plan, const GroupRanks& ranks, int64_t rank,
                             int64_t whole_up_to_bytes);

// Throws std::invalid_argument unless the plan leads from one layout to the other, step by step.
void check_leads(const Plan& plan, const Layout& from, const Layout& to);

// The same on every rank that has the same steps between the same layouts.
uint64_t hash_of(const Plan& plan);

}  // namespace shardway
