#include "plan/search/stages.h"

#include <algorithm>
#include <stdexcept>

#include "plan/geometry/all_reduce_shares.h"
#include "plan/geometry/exchange_rules.h"

namespace shardway {
namespace {

[[noreturn]] void refuse(const Step& step, const std::string& why) {
  throw std::invalid_argument("the plan's step from " + placements_text(step.from) + " to " +
                              placements_text(step.to) + " calls itself " + name_of(step.kind) + ", but " +
                              why);
}

// Whether every rank has its part of the result already: nothing moves between ranks.
bool is_local(const Layout& from, const Layout& to, const ExchangeRules& rules) {
  const Mesh& mesh = to.mesh();
  const bool combines = std::any_of(rules.resolved.begin(), rules.resolved.end(),
                                    [&](int64_t dim) { return from.mesh().size(dim) > 1; });
  for (int64_t position = 0; position < mesh.size(); ++position) {
    const auto there = from.mesh().position_of(mesh.ranks()[static_cast<size_t>(position)]);
    const Box wanted = to.box_at(position);
    if (wanted.volume() == 0) continue;
    if (combines || !there || !contains(from.box_at(*there), wanted)) return false;
  }
  return true;
}

// Whether the step only combines addends where they lie.
bool combines_in_place(const Step& step, const ExchangeRules& rules) {
  if (rules.resolved.empty()) return false;
  std::vector<Placement> placements = step.from.placements();
  for (const int64_t dim : rules.resolved) placements[static_cast<size_t>(dim)] = replicate();
  return step.from.with(placements, step.from.order()) == step.to;
}

// Whether each rank of the group has an addend of the whole tensor, and gets what they add up to.
bool is_all_reduce_of_group(const Step& step, const ExchangeRules& rules, const GroupRanks& ranks) {
  int64_t members = 1;
  for (const int64_t dim : rules.resolved) members *= step.from.mesh().size(dim);
  return members > 1 && members == ranks.size() && combines_in_place(step, rules);
}

bool is_replicated(const Layout& layout) {
  return std::all_of(layout.placements().begin(), layout.placements().end(),
                     [](const Placement& placement) { return placement.is_replicate(); });
}

// Whether the mesh has every rank of the group once, in the group's order.
bool is_whole_group(const Mesh& mesh, const GroupRanks& ranks) {
  if (mesh.size() != ranks.size()) return false;
  for (int64_t position = 0; position < mesh.size(); ++position) {
    if (ranks.rank_of(mesh.ranks()[static_cast<size_t>(position)]) != position) return false;
  }
  return true;
}

// The layout as a split along one dim with one part per rank, in rank order; nothing if it is another.
std::optional<Split> split_in_rank_order(const Layout& layout) {
  Split split{.shape = layout.shape(), .dim = -1};
  for (int64_t dim = 0; dim < layout.ndim(); ++dim) {
    const auto& mesh_dims = layout.order()[static_cast<size_t>(dim)];
    const bool is_split = std::any_of(mesh_dims.begin(), mesh_dims.end(),
                                      [&](int64_t mesh_dim) { return layout.mesh().size(mesh_dim) > 1; });
    if (!is_split) continue;
    if (split.dim >= 0) return std::nullopt;
    split.dim = dim;
  }
  if (split.dim < 0) return std::nullopt;
  const auto d = static_cast<size_t>(split.dim);
  int64_t offset = 0;
  for (int64_t position = 0; position < layout.mesh().size(); ++position) {
    const Box box = layout.box_at(position);
    if (box.offset[d] != offset && box.extent[d] > 0) return std::nullopt;
    offset += box.extent[d];
    split.sizes.push_back(box.extent[d]);
  }
  if (offset != layout.shape()[d]) return std::nullopt;  // replicas
  return split;
}

// The collective of the whole group that the step is, if it is one: an engine may have its own form of it.
// Only the layouts decide, so every rank comes to the same answer.
std::optional<Route> collective_of(const Step& step, const ExchangeRules& rules, const GroupRanks& ranks,
                                   int64_t rank) {
  if (is_all_reduce_of_group(step, rules, ranks)) {
    Route route = all_reduce_route(step.from.shape(), rank, ranks.size(), rules.op);
    route.divisor = rules.divisor;
    return route;
  }
  if (!rules.is_same_mesh || !is_whole_group(step.from.mesh(), ranks)) return std::nullopt;
  if (is_replicated(step.to) && rules.resolved.empty()) {
    if (const auto split = split_in_rank_order(step.from)) return all_gather_route(*split, rank);
  }
  const bool holds_addends = static_cast<int64_t>(rules.resolved.size()) == step.from.mesh().ndim();
  if (!holds_addends) return std::nullopt;
  if (const auto split = split_in_rank_order(step.to)) {
    Route route = reduce_scatter_route(*split, rank, rules.op);
    route.divisor = rules.divisor;
    return route;
  }
  return std::nullopt;
}

void number_by_group(Moves& moves, const GroupRanks& ranks) {
  for (Move& move : moves) move.peer = *ranks.rank_of(move.peer);
  const auto before = [](const Move& a, const Move& b) { return a.peer < b.peer; };
  if (!std::is_sorted(moves.begin(), moves.end(), before))
    std::stable_sort(moves.begin(), moves.end(), before);
}

Route direct_route(const Step& step, const ExchangeRules& rules, const GroupRanks& ranks, int64_t rank) {
  if (auto route = collective_of(step, rules, ranks, rank)) return *std::move(route);
  Route route = redistribution_route(step.from, step.to, ranks.number_of(rank));
  route.rank = rank;
  route.size = ranks.size();
  number_by_group(route.pulls, ranks);
  number_by_group(route.pushes, ranks);
  if (is_local(step.from, step.to, rules)) route.pattern = Pattern::own;
  return route;
}

Stage direct_stage(Route route) {
  Stage stage{.output_shape = route.output_shape, .landing = Box::whole(route.output_shape)};
  stage.route = std::move(route);
  return stage;
}

Stage all_reduce_stage(const Step& step, const ExchangeRules& rules, const GroupRanks& ranks, int64_t rank) {
  AllReduceRoutes routes = all_reduce_routes(step.from, rules.resolved, ranks.number_of(rank));
  routes.combination.op = rules.op;
  routes.combination.divisor = rules.divisor;
  for (Route* route : {&routes.combination, &routes.collection}) {
    route->rank = rank;
    route->size = ranks.size();
    number_by_group(route->pulls, ranks);
    number_by_group(route->pushes, ranks);
  }
  return {.output_shape = routes.collection.output_shape,
          .route = std::move(routes.combination),
          .landing = std::move(routes.landing),
          .collection = std::move(routes.collection)};
}

int64_t largest_box_bytes(const Layout& layout) {
  int64_t volume = 0;
  for (int64_t position = 0; position < layout.mesh().size(); ++position)
    volume = std::max(volume, layout.box_at(position).volume());
  return volume * item_bytes(layout.dtype());
}

// Between two ranks an exchange sends no more than an all_reduce, but each rank combines everything. From
// about this size on that costs more than a second meeting, unless the engine combines in one pass
// (docs/decisions/0008).
constexpr int64_t kCombinedWholeBytes = 256 << 10;

bool runs_as_two_routes(const Step& step, const ExchangeRules& rules, int64_t whole_up_to_bytes) {
  const bool is_all_reduce = step.kind == StepKind::all_reduce;
  const bool is_in_place = combines_in_place(step, rules);
  if (is_all_reduce && !is_in_place) refuse(step, "it does more than combine addends where they lie");
  if (!is_in_place || step.from.ndim() == 0) return false;
  const int64_t one_route_up_to =
      is_all_reduce ? whole_up_to_bytes : std::max(whole_up_to_bytes, kCombinedWholeBytes);
  return largest_box_bytes(step.from) > one_route_up_to;
}

Stage stage_of(const Step& step, const GroupRanks& ranks, int64_t rank, int64_t whole_up_to_bytes) {
  const ExchangeRules rules = exchange_rules_between(step.from, step.to);
  if (step.kind == StepKind::slice && !is_local(step.from, step.to, rules))
    refuse(step, "ranks need what others hold");
  if (runs_as_two_routes(step, rules, whole_up_to_bytes)) return all_reduce_stage(step, rules, ranks, rank);
  return direct_stage(direct_route(step, rules, ranks, rank));
}

}  // namespace

std::vector<Stage> stages_of(const Plan& plan, const GroupRanks& ranks, int64_t rank,
                             int64_t whole_up_to_bytes) {
  std::vector<Stage> stages;
  for (const Step& step : plan.steps) {
    ranks.check_cover(step.from.mesh());
    ranks.check_cover(step.to.mesh());
    stages.push_back(stage_of(step, ranks, rank, whole_up_to_bytes));
  }
  return stages;
}

void check_leads(const Plan& plan, const Layout& from, const Layout& to) {
  if (!(plan.from == from) || !(plan.to == to)) {
    throw std::invalid_argument("the plan leads from " + to_string(plan.from) + " to " + to_string(plan.to) +
                                ", but is to lead from " + to_string(from) + " to " + to_string(to));
  }
  const Layout* last = &plan.from;
  for (const Step& step : plan.steps) {
    if (!(step.from == *last)) {
      throw std::invalid_argument("the plan has a step from " + to_string(step.from) + " after " +
                                  to_string(*last));
    }
    last = &step.to;
  }
  if (!(*last == plan.to))
    throw std::invalid_argument("the plan's steps end at " + to_string(*last) + ", but it leads to " +
                                to_string(plan.to));
}

uint64_t hash_of(const Plan& plan) {
  uint64_t hash = plan.from.hash() * 31 + plan.to.hash();
  for (const Step& step : plan.steps) {
    hash = hash * 1099511628211U + step.to.hash();
    if (step.kind == StepKind::all_reduce) hash = hash * 1099511628211U + 1;
  }
  return hash;
}

}  // namespace shardway
