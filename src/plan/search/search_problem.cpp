#include "plan/search/search_problem.h"

#include <algorithm>
#include <list>

namespace shardway {
namespace {

// All layouts of one shape on meshes of one shape have the same state space. The last few are kept.
class StateSpaceCache {
 public:
  std::shared_ptr<const StateSpace> of(const Layout& from, const Layout& to, const Mesh& mesh) {
    if (has_ragged(from) || has_ragged(to)) return std::make_shared<StateSpace>(from, to, mesh);
    for (auto entry = kept_.begin(); entry != kept_.end(); ++entry) {
      if ((*entry)->shape() == from.shape() && (*entry)->mesh_shape() == mesh.shape() &&
          (*entry)->is_complete()) {
        kept_.splice(kept_.begin(), kept_, entry);
        return kept_.front();
      }
    }
    kept_.push_front(std::make_shared<StateSpace>(from, to, mesh));
    if (kept_.size() > kMostKept) kept_.pop_back();
    return kept_.front();
  }

 private:
  static constexpr size_t kMostKept = 16;

  static bool has_ragged(const Layout& layout) {
    return std::any_of(layout.placements().begin(), layout.placements().end(),
                       [](const Placement& placement) { return placement.is_ragged(); });
  }

  std::list<std::shared_ptr<const StateSpace>> kept_;
};

StateSpaceCache& spaces() {
  static StateSpaceCache cache;
  return cache;
}

DimMask partial_dims(const Layout& layout) {
  DimMask mask = 0;
  for (size_t m = 0; m < layout.placements().size(); ++m) {
    if (layout.placements()[m].is_partial()) mask |= 1U << m;
  }
  return mask;
}

}  // namespace

SearchProblem::SearchProblem(const Layout& from, const Layout& to, const Topology& topology)
    : from_(from), to_(to), space_(spaces().of(from, to, from.mesh())) {
  const bool is_one_mesh = from.mesh() == to.mesh();
  target_space_ = is_one_mesh ? space_ : spaces().of(from, to, to.mesh());
  const int64_t item = item_bytes(from.dtype());
  two_levels_ = TwoLevelPrices::between(topology, from.mesh(), to.mesh());
  table_ = TablePrices::between(topology, from.mesh(), to.mesh());
  const auto add_network = [&](const Mesh& senders, const Mesh& receivers) {
    const Topology figures = two_levels_ ? at_best(topology, senders, receivers)
                             : table_    ? table_->at_best(topology)
                                         : topology;
    networks_.push_back(std::make_unique<Network>(figures, senders, receivers));
  };
  add_network(from.mesh(), from.mesh());
  if (!is_one_mesh) {
    add_network(from.mesh(), to.mesh());
    add_network(to.mesh(), to.mesh());
  }
  for (const auto& network : networks_) {
    prices_.emplace_back(*network, item, table_ ? &*table_ : nullptr);
    bounds_.emplace_back(*network, item);
  }
  least_ = bounds_.front().least();
  for (const LowerBounds& bounds : bounds_) least_ = std::min(least_, bounds.least());
  source_ = {.state = space_->index_of(from), .partial = partial_dims(from)};
  target_ = {
      .is_on_target_mesh = !is_one_mesh, .state = target_space_->index_of(to), .partial = partial_dims(to)};
}

Layout SearchProblem::layout_of(const Node& node) const {
  if (node == source_) return from_;
  if (node == target_) return to_;
  const StateSpace& space = this->space(node.is_on_target_mesh);
  std::vector<Placement> placements;
  for (size_t m = 0; m < space.mesh_dims(); ++m) {
    placements.push_back(has(node.partial, m) ? from_.placements()[m] : space.placement_of(node.state, m));
  }
  ShardOrder order;
  for (size_t d = 0; d < space.shape().size(); ++d) order.push_back(space.order_of(node.state, d));
  return from_.with(node.is_on_target_mesh ? to_.mesh() : from_.mesh(), std::move(placements),
                    std::move(order));
}

Node SearchProblem::node_of(const Layout& layout) const {
  const bool on_target = !(layout.mesh() == from_.mesh());
  return {.is_on_target_mesh = on_target,
          .state = space(on_target).index_of(layout),
          .partial = partial_dims(layout)};
}

bool SearchProblem::leads(const Node& before, const Node& after) const {
  if (before == after || (before.is_on_target_mesh && !after.is_on_target_mesh)) return false;
  if (before.is_on_target_mesh != after.is_on_target_mesh) return after.partial == 0;
  return (after.partial & ~before.partial) == 0;
}

bool SearchProblem::only_cuts(const Node& before, const Node& after) const {
  const StateSpace& there = space(before.is_on_target_mesh);
  if (before.partial != after.partial && there.ranks_along(before.partial & ~after.partial) > 1) return false;
  if (before.is_on_target_mesh == after.is_on_target_mesh) return there.only_cuts(before.state, after.state);
  const StateBoxes& held = there.boxes(before.state);
  const StateBoxes& wanted = target_space_->boxes(after.state);
  const Network& network = *networks_[network_of(before, after)];
  for (size_t r = 0; r < wanted.positions; ++r) {
    if (wanted.volumes[r] == 0) continue;
    const int64_t own = network.own_sender(r);
    if (own < 0 || !lies_within(wanted, r, held, static_cast<size_t>(own))) return false;
  }
  return true;
}

StateExchange SearchProblem::exchange_of(const Node& before, const Node& after) const {
  return {.senders = space(before.is_on_target_mesh),
          .from = before.state,
          .receivers = space(after.is_on_target_mesh),
          .to = after.state,
          .resolved = before.partial & ~after.partial};
}

const TwoLevelStep& SearchProblem::two_level_step(const Node& before, const Node& after,
                                                  bool is_all_reduce) const {
  const auto [entry, is_new] = two_level_steps_.try_emplace({before, after, is_all_reduce});
  if (is_new) entry->second = two_levels_->of(layout_of(before), layout_of(after), is_all_reduce);
  return entry->second;
}

Price SearchProblem::price_of(const Node& before, const Node& after, bool is_all_reduce) {
  if (two_levels_) return two_level_step(before, after, is_all_reduce).price;
  PriceList& prices = prices_[network_of(before, after)];
  if (is_all_reduce) {
    return prices.of_all_reduce(space(before.is_on_target_mesh), before.state,
                                before.partial & ~after.partial);
  }
  return prices.of_exchange(exchange_of(before, after));
}

// In two levels addends are combined on the way: a step receives no more than a path must.
Femtoseconds SearchProblem::rough_bound_of(const Node& before, const Node& after) {
  if (two_levels_) return rough_bound_of_path(before, after);
  return bounds_[network_of(before, after)].rough_bound_of_step(exchange_of(before, after));
}

Femtoseconds SearchProblem::bound_of(const Node& before, const Node& after) {
  if (two_levels_) return std::max(rough_bound_of_path(before, after), bound_of_path(before, after));
  return bounds_[network_of(before, after)].bound_of_step(exchange_of(before, after));
}

Femtoseconds SearchProblem::bound_of_all_reduce(const Node& before, const Node& after) const {
  return bounds_[network_of(before, after)].bound_of_all_reduce(space(before.is_on_target_mesh), before.state,
                                                                before.partial & ~after.partial);
}

Femtoseconds SearchProblem::rough_bound_of_path(const Node& before, const Node& after) {
  if (only_cuts(before, after)) return 0;
  const double stays = space_->ranks_along(after.partial);
  return std::max(least_,
                  bounds_[network_of(before, after)].rough_bound_of_path(exchange_of(before, after), stays));
}

Femtoseconds SearchProblem::bound_of_path(const Node& before, const Node& after) {
  const double stays = space_->ranks_along(after.partial);
  return bounds_[network_of(before, after)].bound_of_path(exchange_of(before, after), stays);
}

void SearchProblem::add_staging(const TwoLevelStep& step, const Network& network,
                                std::vector<double>& elements) const {
  const auto staging_at = [&](int64_t rank) {
    return static_cast<double>(step.ranks[static_cast<size_t>(rank)].staging_bytes) /
           static_cast<double>(item_bytes(from_.dtype()));
  };
  const std::vector<int64_t>& senders = network.senders().ranks();
  const std::vector<int64_t>& receivers = network.receivers().ranks();
  for (size_t p = 0; p < senders.size(); ++p) elements[network.sender_slot(p)] += staging_at(senders[p]);
  for (size_t r = 0; r < receivers.size(); ++r) {
    if (network.own_sender(r) < 0) elements[network.receiver_slot(r)] += staging_at(receivers[r]);
  }
}

int64_t SearchProblem::peak_bytes_of(const Node& before, const Node& after, bool is_all_reduce) const {
  const StateExchange exchange = exchange_of(before, after);
  const PriceList& prices = prices_[network_of(before, after)];
  const Network& network = prices.network();
  const StateBoxes& input = exchange.senders.boxes(exchange.from);
  const StateBoxes& output = exchange.receivers.boxes(exchange.to);
  std::vector<double> elements(network.ranks(), 0);
  for (size_t p = 0; p < input.positions; ++p) {
    if (!(before == source_)) elements[network.sender_slot(p)] += input.volumes[p];
  }
  for (size_t r = 0; r < output.positions; ++r) {
    elements[network.receiver_slot(r)] += output.volumes[r];
    if (two_levels_) continue;
    elements[network.receiver_slot(r)] += is_all_reduce ? output.volumes[r] : prices.staging_of(exchange, r);
  }
  if (two_levels_) add_staging(two_level_step(before, after, is_all_reduce), network, elements);
  // The plan's input stays with the caller.
  const StateBoxes& source = space_->boxes(source_.state);
  for (size_t p = 0; p < source.positions; ++p) {
    const auto place = before.is_on_target_mesh ? to_.mesh().position_of(from_.mesh().ranks()[p])
                                                : std::optional<int64_t>(static_cast<int64_t>(p));
    if (place) elements[network.sender_slot(static_cast<size_t>(*place))] += source.volumes[p];
  }
  return static_cast<int64_t>(*std::max_element(elements.begin(), elements.end())) *
         item_bytes(from_.dtype());
}

}  // namespace shardway
