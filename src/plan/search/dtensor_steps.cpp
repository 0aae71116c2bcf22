// The steps that DTensor's two planners take, one mesh dim at a time.
#include "plan/search/dtensor_steps.h"

#include <algorithm>
#include <map>
#include <queue>
#include <stdexcept>

namespace shardway::collective_utils {
namespace {

std::vector<size_t> dims_sharding(const Placements& placements, int64_t tensor_dim, size_t before) {
  std::vector<size_t> dims;
  for (size_t m = 0; m < before; ++m) {
    if (placements[m].is_shard() && placements[m].dim == tensor_dim) dims.push_back(m);
  }
  return dims;
}

// A state of the min-cost planner: the placement of each mesh dim, and the order of cuts.
struct TorchState {
  std::vector<int8_t> kinds = {};  // tensor dim, or one of those below
  ShardOrder order = {};

  static constexpr int8_t kReplicate = -1;
  static constexpr int8_t kFirstPartial = -2;  // -2 - op

  auto operator<=>(const TorchState&) const = default;
};

bool is_partial(int8_t kind) { return kind <= TorchState::kFirstPartial; }

TorchState state_of(const Layout& layout) {
  TorchState state{.order = layout.order()};
  for (const Placement& placement : layout.placements()) {
    if (placement.is_ragged()) throw std::invalid_argument("torch_2_13: DTensor has no ragged shards");
    if (placement.is_shard()) {
      state.kinds.push_back(static_cast<int8_t>(placement.dim));
    } else if (placement.is_partial()) {
      state.kinds.push_back(
          static_cast<int8_t>(TorchState::kFirstPartial - static_cast<int8_t>(placement.op)));
    } else {
      state.kinds.push_back(TorchState::kReplicate);
    }
  }
  return state;
}

Layout layout_of(const TorchState& state, const Layout& like) {
  std::vector<Placement> placements;
  for (const int8_t kind : state.kinds) {
    if (kind >= 0) {
      placements.push_back(shard(kind));
    } else if (is_partial(kind)) {
      placements.push_back(partial(static_cast<Op>(TorchState::kFirstPartial - kind)));
    } else {
      placements.push_back(replicate());
    }
  }
  return like.with(std::move(placements), state.order);
}

// A mesh dim of a state becomes another kind. Shards leave and enter an order at its inner end.
struct KindChange {
  size_t mesh_dim;
  int8_t kind;
};

TorchState changed(TorchState state, KindChange change) {
  const int8_t before = state.kinds[change.mesh_dim];
  if (before >= 0) state.order[static_cast<size_t>(before)].pop_back();
  if (change.kind >= 0) {
    state.order[static_cast<size_t>(change.kind)].push_back(static_cast<int64_t>(change.mesh_dim));
  }
  state.kinds[change.mesh_dim] = change.kind;
  return state;
}

bool mixes_partials(const TorchState& state, int8_t added) {
  const auto adds = [](int8_t kind) {
    const auto op = static_cast<Op>(TorchState::kFirstPartial - kind);
    return op == Op::sum || op == Op::avg;
  };
  return std::any_of(state.kinds.begin(), state.kinds.end(), [&](int8_t kind) {
    return is_partial(kind) && kind != added && !(adds(kind) && adds(added));
  });
}

// Innermost shards move to another tensor dim or are gathered. Addends are combined. Replicas are split or,
// if an endpoint has such a Partial, made into addends.
std::vector<KindChange> changes_of(const TorchState& state, const std::vector<int8_t>& partials) {
  std::vector<KindChange> changes;
  const auto tensor_dims = static_cast<int8_t>(state.order.size());
  for (size_t m = 0; m < state.kinds.size(); ++m) {
    const int8_t kind = state.kinds[m];
    if (kind >= 0 && state.order[static_cast<size_t>(kind)].back() != static_cast<int64_t>(m)) continue;
    for (int8_t dim = 0; dim < tensor_dims; ++dim) {
      if (dim != kind) changes.push_back({m, dim});
    }
    if (kind != TorchState::kReplicate) {
      changes.push_back({m, TorchState::kReplicate});
      continue;
    }
    for (const int8_t partial : partials) {
      if (!mixes_partials(state, partial)) changes.push_back({m, partial});
    }
  }
  return changes;
}

double change_cost(const TorchState& state, KindChange change, const Layout& like, const MeshTopoInfo& topo) {
  double bytes_gb = static_cast<double>(spec_to_bytes(like)) / (1024.0 * 1024.0 * 1024.0);
  for (size_t m = 0; m < state.kinds.size(); ++m) {
    if (state.kinds[m] >= 0) bytes_gb /= static_cast<double>(topo.mesh_dim_devices[m]);
  }
  const auto dim = static_cast<int64_t>(change.mesh_dim);
  const int8_t before = state.kinds[change.mesh_dim];
  if (before >= 0 && change.kind >= 0) return allgather_cost(bytes_gb, topo, dim) + 1.0;
  if (before >= 0) {
    return allgather_cost(bytes_gb * static_cast<double>(topo.mesh_dim_devices[change.mesh_dim]), topo, dim);
  }
  if (before == TorchState::kReplicate) return 0;
  return change.kind >= 0 ? reduce_scatter_cost(bytes_gb, topo, dim) : allreduce_cost(bytes_gb, topo, dim);
}

struct Reached {
  double cost = kImpossible;
  TorchState before = {};
};

std::vector<Layout> path_back(const std::map<TorchState, Reached>& reached, const TorchState& source,
                              const TorchState& target, const Layout& like) {
  std::vector<Layout> layouts;
  for (TorchState state = target; !(state == source); state = reached.at(state).before) {
    layouts.push_back(layout_of(state, like));
  }
  layouts.push_back(layout_of(source, like));
  std::reverse(layouts.begin(), layouts.end());
  return layouts;
}

}  // namespace

// Goes from the inner mesh dim outward and sends everything straight to its target that can go there. A shard
// is gathered first if outer shards of the same tensor dim will change. The rest follows from the outer dim
// inward.
std::vector<Placements> greedy_placements(const Layout& from, const Layout& to) {
  Placements current = from.placements();
  const Placements& target = to.placements();
  std::vector<Placements> passed{current};
  const auto change = [&](size_t m, const Placement& placement) {
    if (current[m] == placement) return;
    current[m] = placement;
    passed.push_back(current);
  };
  int64_t shards = 1;
  for (size_t m = 0; m < current.size(); ++m) shards *= current[m].is_shard() ? from.mesh().shape()[m] : 1;
  if (shards > 1 && current.size() > 1) {
    for (size_t m = current.size(); m-- > 0;) {
      const bool is_misaligned = target[m].is_shard() && dims_sharding(current, target[m].dim, m) !=
                                                             dims_sharding(target, target[m].dim, m);
      change(m, is_misaligned ? replicate() : target[m]);
    }
  }
  for (size_t m = 0; m < current.size(); ++m) change(m, target[m]);
  return passed;
}

std::vector<Layout> greedy_layouts(const Layout& from, const Layout& to) {
  std::vector<Layout> layouts;
  for (const Placements& placements : greedy_placements(from, to)) layouts.push_back(from.with(placements));
  return layouts;
}

std::vector<Layout> min_cost_layouts(const Layout& from, const Layout& to, const MeshTopoInfo& topo) {
  const TorchState source = state_of(from);
  const TorchState target = state_of(to);
  std::vector<int8_t> partials;
  for (const TorchState* state : {&source, &target}) {
    for (const int8_t kind : state->kinds) {
      if (is_partial(kind) && std::find(partials.begin(), partials.end(), kind) == partials.end()) {
        partials.push_back(kind);
      }
    }
  }
  std::map<TorchState, Reached> reached{{source, {.cost = 0}}};
  using Entry = std::pair<double, TorchState>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  queue.emplace(0, source);
  while (!queue.empty()) {
    const auto [cost, state] = queue.top();
    queue.pop();
    if (cost > reached.at(state).cost) continue;
    if (state == target) return path_back(reached, source, target, from);
    for (const KindChange change : changes_of(state, partials)) {
      const TorchState next = changed(state, change);
      const double total = cost + change_cost(state, change, from, topo);
      Reached& best = reached[next];
      if (total >= best.cost) continue;
      best = {.cost = total, .before = state};
      queue.emplace(total, next);
    }
  }
  throw std::invalid_argument("torch_2_13: no way from " + placements_text(from) + " to " +
                              placements_text(to));
}

}  // namespace shardway::collective_utils
