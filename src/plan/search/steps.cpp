#include "plan/search/steps.h"

namespace shardway {
namespace {

// How the mesh dims change between two states of one state space.
struct Change {
  DimMask gathered = 0;   // sharded before, not after
  DimMask cut = 0;        // sharded after, not before
  DimMask moved = 0;      // sharded before and after, otherwise
  DimMask elsewhere = 0;  // moved to another tensor dim
};

Change change_between(const ShardState& before, const ShardState& after) {
  Change change;
  change.gathered = before.sharded & ~after.sharded;
  change.cut = after.sharded & ~before.sharded;
  for (size_t m = 0; m < kMostMeshDims; ++m) {
    if (!has(before.sharded & after.sharded, m) || before.roles[m] == after.roles[m]) continue;
    change.moved |= 1U << m;
    if (before.roles[m].tensor_dim != after.roles[m].tensor_dim) change.elsewhere |= 1U << m;
  }
  return change;
}

// Whether every rank keeps its box, or takes all of its new one from one peer.
bool permutes(const StateSpace& space, const PathStep& step) {
  if (step.price.most_received_from > 1) return false;
  const StateBoxes& before = space.boxes(step.before.state);
  const StateBoxes& after = space.boxes(step.after.state);
  for (size_t p = 0; p < space.positions(); ++p) {
    const double common = common_volume(before, p, after, p);
    if (common != 0 && common != after.volumes[p]) return false;
  }
  return true;
}

StepKind kind_of(const SearchProblem& problem, const PathStep& step) {
  if (step.is_all_reduce) return StepKind::all_reduce;
  if (!step.price.communicates) return StepKind::slice;
  if (step.before.is_on_target_mesh != step.after.is_on_target_mesh) return StepKind::exchange;
  const StateSpace& space = problem.space(step.before.is_on_target_mesh);
  const Change change = change_between(space.state(step.before.state), space.state(step.after.state));
  const DimMask resolved = step.before.partial & ~step.after.partial;
  if (resolved != 0) {
    const bool scatters = change.cut == resolved && change.gathered == 0 && change.moved == 0;
    return scatters ? StepKind::reduce_scatter : StepKind::exchange;
  }
  if (change.cut == 0 && change.moved == 0) return StepKind::all_gather;
  if (permutes(space, step)) return StepKind::permute;
  const bool only_moves = change.cut == 0 && change.gathered == 0 && change.moved == change.elsewhere;
  return only_moves ? StepKind::all_to_all : StepKind::exchange;
}

std::vector<int64_t> spanned_dims(const SearchProblem& problem, const PathStep& step) {
  std::vector<int64_t> dims;
  if (!step.price.communicates || step.before.is_on_target_mesh != step.after.is_on_target_mesh) return dims;
  const StateSpace& space = problem.space(step.before.is_on_target_mesh);
  const DimMask spanned = (step.is_all_reduce ? 0 : space.unsettled(step.before.state, step.after.state)) |
                          (step.before.partial & ~step.after.partial);
  for (size_t m = 0; m < space.mesh_dims(); ++m) {
    if (has(spanned, m) && space.mesh_shape()[m] > 1) dims.push_back(static_cast<int64_t>(m));
  }
  return dims;
}

std::string dims_text(const Step& step) {
  std::string text;
  for (const int64_t dim : step.mesh_dims) {
    const auto& names = step.from.mesh().names();
    text +=
        (text.empty() ? "" : ",") + (names.empty() ? std::to_string(dim) : names[static_cast<size_t>(dim)]);
  }
  return text.empty() ? "" : "(" + text + ")";
}

}  // namespace

Step step_of(const SearchProblem& problem, const PathStep& step) {
  return {.kind = kind_of(problem, step),
          .mesh_dims = spanned_dims(problem, step),
          .from = problem.layout_of(step.before),
          .to = problem.layout_of(step.after),
          .cost_us = in_us(step.price.cost),
          .latency_us = step.price.latency_us,
          .bytes = step.price.bytes,
          .total_bytes = step.price.total_bytes,
          .peak_bytes = step.peak_bytes,
          .crossing_bytes = step.price.crossing_bytes,
          .is_extrapolated = step.price.is_extrapolated};
}

std::optional<PricedPath> path_along(SearchProblem& problem, const std::vector<Layout>& layouts) {
  PricedPath path;
  for (size_t i = 0; i + 1 < layouts.size(); ++i) {
    PathStep step{.before = problem.node_of(layouts[i]), .after = problem.node_of(layouts[i + 1])};
    if (!problem.leads(step.before, step.after)) return std::nullopt;
    step.is_all_reduce = SearchProblem::combines_in_place(step.before, step.after);
    step.price = problem.price_of(step.before, step.after, step.is_all_reduce);
    step.peak_bytes = problem.peak_bytes_of(step.before, step.after, step.is_all_reduce);
    path.cost += step.price.cost;
    path.bytes += step.price.bytes;
    path.steps.push_back(step);
  }
  return path;
}

std::string text_of(const std::vector<Step>& steps, const Layout& from) {
  std::string text = placements_text(from);
  for (const Step& step : steps) {
    text += std::string(" -") + name_of(step.kind) + dims_text(step) + "-> " + placements_text(step.to);
  }
  return text;
}

}  // namespace shardway
