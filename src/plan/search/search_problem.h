// The states, links and ends that a search between two layouts looks at.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "plan/price/lower_bounds.h"
#include "plan/price/price.h"
#include "plan/price/state_space.h"
#include "plan/price/two_level_prices.h"
#include "shardway/layout.h"
#include "shardway/topology.h"

namespace shardway {

// A state on one of the two meshes, and the mesh dims that still hold addends.
struct Node {
  bool is_on_target_mesh = false;
  size_t state = 0;
  DimMask partial = 0;

  auto operator<=>(const Node&) const = default;
};

// The state spaces of source and target (the same one if the meshes are), the links between ranks, and where
// the search begins and ends. Made once per pair of layouts. One thread at a time.
class SearchProblem {
 public:
  SearchProblem(const Layout& from, const Layout& to, const Topology& topology);
  SearchProblem(const SearchProblem&) = delete;  // prices point into it
  SearchProblem& operator=(const SearchProblem&) = delete;

  const StateSpace& space(bool of_target_mesh) const { return of_target_mesh ? *target_space_ : *space_; }
  const Node& source() const { return source_; }
  const Node& target() const { return target_; }

  // The node as a layout. Its Partial placements are the source's.
  Layout layout_of(const Node& node) const;
  Node node_of(const Layout& layout) const;

  bool is_in_two_levels() const { return two_levels_.has_value(); }

  // Whether an exchange may lead from one node to another: addends are combined, never made.
  bool leads(const Node& before, const Node& after) const;

  // Whether a step between two nodes moves nothing between ranks.
  bool only_cuts(const Node& before, const Node& after) const;

  // The least that a step costs which moves something.
  Femtoseconds least() const { return least_; }

  // Whether there are so many ranks that one price takes longer than hundreds of bounds.
  bool is_dear() const { return networks_.front()->ranks() >= kManyRanks; }

  // Whether an all_reduce leads from one node to the other.
  static bool combines_in_place(const Node& before, const Node& after) {
    return before.is_on_target_mesh == after.is_on_target_mesh && before.state == after.state &&
           before.partial != after.partial;
  }

  Price price_of(const Node& before, const Node& after, bool is_all_reduce);
  Femtoseconds rough_bound_of(const Node& before, const Node& after);
  Femtoseconds bound_of(const Node& before, const Node& after);
  Femtoseconds bound_of_all_reduce(const Node& before, const Node& after) const;
  Femtoseconds rough_bound_of_path(const Node& before, const Node& after);
  Femtoseconds bound_of_path(const Node& before, const Node& after);

  // The worst rank's memory in a step: the plan's input, the step's own input and output, and staging.
  int64_t peak_bytes_of(const Node& before, const Node& after, bool is_all_reduce) const;

 private:
  static constexpr size_t kManyRanks = 32;

  const TwoLevelStep& two_level_step(const Node& before, const Node& after, bool is_all_reduce) const;
  void add_staging(const TwoLevelStep& step, const Network& network, std::vector<double>& elements) const;
  StateExchange exchange_of(const Node& before, const Node& after) const;
  // Of the three networks: on the source's mesh, to the target's, on the target's.
  static size_t network_of(const Node& before, const Node& after) {
    return static_cast<size_t>(before.is_on_target_mesh) + static_cast<size_t>(after.is_on_target_mesh);
  }

  Layout from_;
  Layout to_;
  std::shared_ptr<const StateSpace> space_;
  std::shared_ptr<const StateSpace> target_space_;
  std::optional<TwoLevelPrices> two_levels_;
  std::optional<TablePrices> table_;
  mutable std::map<std::tuple<Node, Node, bool>, TwoLevelStep> two_level_steps_;
  std::vector<std::unique_ptr<Network>> networks_;  // in two levels or by a table, of figures that only bound
  std::vector<PriceList> prices_;
  std::vector<LowerBounds> bounds_;
  Node source_;
  Node target_;
  Femtoseconds least_ = 0;
};

}  // namespace shardway
