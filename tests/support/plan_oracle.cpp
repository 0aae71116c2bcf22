#include "plan_oracle.h"

#include <algorithm>
#include <limits>

#include "step_prices.h"

namespace shardway::testing {
namespace {

constexpr double kNoWay = std::numeric_limits<double>::infinity();

// Choices of the mesh dims one after the other; a shard stands at any place in its tensor dim's order.
class Enumeration {
 public:
  Enumeration(const std::vector<Layout>& ends, std::vector<Placement> partials)
      : ends_(ends), like_(ends.front()), partials_(std::move(partials)) {}

  std::vector<Layout> all() {
    std::vector<Placement> placements;
    choose(placements);
    return std::move(layouts_);
  }

 private:
  std::vector<Placement> choices(size_t m) const {
    std::vector<Placement> choices{replicate()};
    for (int64_t d = 0; d < like_.ndim(); ++d) choices.push_back(shard(d));
    for (const Layout& end : ends_) {
      if (end.mesh() == like_.mesh() && end.placements()[m].is_ragged())
        choices.push_back(end.placements()[m]);
    }
    if (!partials_.empty() && partials_[m].is_partial()) choices.push_back(partials_[m]);
    std::vector<Placement> once;
    for (const Placement& choice : choices) {
      if (std::find(once.begin(), once.end(), choice) == once.end()) once.push_back(choice);
    }
    return once;
  }

  void choose(std::vector<Placement>& placements) {
    if (placements.size() == like_.mesh().shape().size()) {
      ShardOrder order(like_.shape().size());
      for (size_t m = 0; m < placements.size(); ++m) {
        if (placements[m].is_shard())
          order[static_cast<size_t>(placements[m].dim)].push_back(static_cast<int64_t>(m));
      }
      add_orders(placements, order, 0);
      return;
    }
    for (const Placement& choice : choices(placements.size())) {
      placements.push_back(choice);
      choose(placements);
      placements.pop_back();
    }
  }

  void add_orders(const std::vector<Placement>& placements, ShardOrder& order, size_t dim) {
    if (dim == order.size()) {
      layouts_.push_back(like_.with(placements, order));
      return;
    }
    std::sort(order[dim].begin(), order[dim].end());
    do {
      const bool has_inner_ragged =
          !order[dim].empty() && std::any_of(order[dim].begin() + 1, order[dim].end(), [&](int64_t m) {
            return placements[static_cast<size_t>(m)].is_ragged();
          });
      if (!has_inner_ragged) add_orders(placements, order, dim + 1);
    } while (std::next_permutation(order[dim].begin(), order[dim].end()));
  }

  const std::vector<Layout>& ends_;
  const Layout& like_;
  std::vector<Placement> partials_;
  std::vector<Layout> layouts_;
};

}  // namespace

std::vector<Layout> every_layout(const std::vector<Layout>& ends, const std::vector<Placement>& partials) {
  return Enumeration(ends, partials).all();
}

Costs cheapest_paths(const std::vector<Layout>& layouts, const Topology& topology) {
  const std::vector<Held> nodes(layouts.begin(), layouts.end());
  const StepPrices prices(layouts.front().mesh(), layouts.front().mesh(), topology);
  const size_t count = nodes.size();
  Costs costs(count, std::vector<double>(count, kNoWay));
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = 0; b < count; ++b) costs[a][b] = a == b ? 0 : prices.step_us(nodes[a], nodes[b]);
  }
  for (size_t via = 0; via < count; ++via) {
    for (size_t a = 0; a < count; ++a) {
      if (costs[a][via] == kNoWay) continue;
      for (size_t b = 0; b < count; ++b) costs[a][b] = std::min(costs[a][b], costs[a][via] + costs[via][b]);
    }
  }
  return costs;
}

// Dijkstra; once on the target's mesh a path stays there.
double cheapest_path(const Layout& from, const Layout& to, const Topology& topology) {
  std::vector<Layout> layouts = every_layout({from, to}, from.placements());
  const size_t on_source_mesh = layouts.size();
  if (!(from.mesh() == to.mesh())) {
    for (Layout& layout : every_layout({to, from}, {})) layouts.push_back(std::move(layout));
  }
  const std::vector<Held> nodes(layouts.begin(), layouts.end());
  const StepPrices before(from.mesh(), from.mesh(), topology);
  const StepPrices across(from.mesh(), to.mesh(), topology);
  const StepPrices after(to.mesh(), to.mesh(), topology);
  const auto place_of = [&](const Layout& layout) {
    return static_cast<size_t>(std::find(layouts.begin(), layouts.end(), layout) - layouts.begin());
  };
  std::vector<double> costs(nodes.size(), kNoWay);
  std::vector<bool> is_done(nodes.size(), false);
  costs.at(place_of(from)) = 0;
  const size_t target = place_of(to);
  while (!is_done.at(target)) {
    size_t nearest = target;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (!is_done[i] && costs[i] < costs[nearest]) nearest = i;
    }
    is_done[nearest] = true;
    const bool has_crossed = nearest >= on_source_mesh;
    for (size_t i = has_crossed ? on_source_mesh : 0; i < nodes.size(); ++i) {
      if (is_done[i]) continue;
      const StepPrices& prices = has_crossed ? after : i >= on_source_mesh ? across : before;
      costs[i] = std::min(costs[i], costs[nearest] + prices.step_us(nodes[nearest], nodes[i]));
    }
  }
  return costs[target];
}

}  // namespace shardway::testing
