// A plan as one rank runs it: a route or two per step, between the ranks of a group.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "shardway/plan.h"

namespace shardway {

// The ranks of a group by the numbers that meshes know them by.
class GroupRanks {
 public:
  // Those of group ranks 0, 1, …
  explicit GroupRanks(std::vector<int64_t> numbers);

  int64_t size() const { return static_cast<int64_t>(numbers_.size()); }
  const std::vector<int64_t>& numbers() const { return numbers_; }
  int64_t number_of(int64_t rank) const { return numbers_[static_cast<size_t>(rank)]; }
  std::optional<int64_t> rank_of(int64_t number) const;

  // Throws std::invalid_argument naming the first rank of the mesh that is not in the group.
  void check_cover(const Mesh& mesh) const;

 private:
  std::vector<int64_t> numbers_;
  std::unordered_map<int64_t, int64_t> rank_of_;
};

// One step. The route fills `landing` of the step's output. An all_reduce is two routes: of the box that its
// ranks have in common each combines a share, straight into its place in the output, and then takes the other
// shares out of the others' outputs.
//
// Example, 2 ranks with an addend each of 4 rows, seen by rank 0:
//   route pulls rows [0,2) of both and lands on rows [0,2); collection pulls rows [2,4) from rank 1.
struct Stage {
  std::vector<int64_t> output_shape = {};
  Route route = {};
  Box landing = {};
  std::optional<Route> collection = std::nullopt;  // from the landing into the rest of the output
};

// The steps of a plan as rank `rank` of the group runs them. Every rank of the group has as many routes that
// communicate, those outside the meshes with nothing in them. An all_reduce of boxes of up to
// `whole_up_to_bytes` is one route: every rank pulls all addends. Throws std::invalid_argument where the
// group does not cover the meshes, and where a step is not what it calls itself.
std::vector<Stage> stages_of(const Plan& plan, const GroupRanks& ranks, int64_t rank,
                             int64_t whole_up_to_bytes);

// Throws std::invalid_argument where the plan does not lead from one layout to the other, step by step.
void check_leads(const Plan& plan, const Layout& from, const Layout& to);

// The same on every rank that has the same steps between the same layouts.
uint64_t hash_of(const Plan& plan);

}  // namespace shardway
