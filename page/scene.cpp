#include "page/scene.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "page/pieces.h"
#include "page/words.h"
#include "plan/geometry/cost_text.h"
#include "plan/geometry/number_text.h"

namespace shardway::page {
namespace {

constexpr size_t kMostCells = 4096;
constexpr size_t kMostHolders = 12;

bool has_addends(const Layout& layout) {
  return std::any_of(layout.placements().begin(), layout.placements().end(),
                     [](const Placement& placement) { return placement.is_partial(); });
}

SceneJson state_of(const Layout& layout, const Tiling& tiling, const Frame& frame) {
  SceneJson holdings = SceneJson::array();
  const auto spaces = spaces_of(layout, tiling, frame);
  for (size_t i = 0; i < tiling.tiles.size(); ++i) {
    const RankTile& tile = tiling.tiles[i];
    SceneJson held;
    if (const auto position = layout.mesh().position_of(tile.ranks.front())) {
      const Box box = layout.box_at(*position);
      held = {{"box", frame.rect_of(box)}, {"at", to_string(box)}, {"bytes", bytes_of(box, layout)}};
      if (tile.ranks.size() > 1 && spaces[i]) held["all"] = *spaces[i];
    }
    holdings.push_back(std::move(held));
  }
  return {{"text", placements_text(layout)}, {"addends", has_addends(layout)}, {"tiles", holdings}};
}

std::string span_text(const Step& step) {
  std::string text;
  const auto& names = step.from.mesh().names();
  for (const int64_t dim : step.mesh_dims) {
    text += (text.empty() ? "" : ", ") +
            (names.empty() ? "mesh dim " + std::to_string(dim) : names[static_cast<size_t>(dim)]);
  }
  return text;
}

// The host that all ranks of a tile are on.
std::optional<int64_t> host_of(const RankTile& tile, const Topology& topology) {
  const int64_t host = topology.host_of(tile.ranks.front());
  const bool is_one = std::all_of(tile.ranks.begin(), tile.ranks.end(),
                                  [&](int64_t rank) { return topology.host_of(rank) == host; });
  return is_one ? std::optional(host) : std::nullopt;
}

// Which of the plan's two meshes a tile's first rank is in.
const char* meshes_of(const RankTile& tile, const Plan& plan) {
  const int64_t rank = tile.ranks.front();
  if (!plan.to.mesh().position_of(rank)) return "from";
  return plan.from.mesh().position_of(rank) ? "both" : "to";
}

SceneJson json_of(const RankTile& tile, const Plan& plan) {
  return {{"rank", tile.ranks.front()},
          {"in", meshes_of(tile, plan)},
          {"ranks", ranges_of(tile.ranks)},
          {"count", tile.ranks.size()},
          {"row", tile.row},
          {"column", tile.column}};
}

SceneJson json_of(const Step& step, const StepScene& scene, bool has_times) {
  SceneJson pieces = SceneJson::array();
  for (const TilePiece& piece : scene.pieces) {
    pieces.push_back({piece.from, piece.to, piece.rect[0], piece.rect[1], piece.rect[2], piece.rect[3],
                      piece.bytes, piece.ranks});
  }
  SceneJson sent = SceneJson::array();
  SceneJson received = SceneJson::array();
  SceneJson us = SceneJson::array();
  for (const RankTraffic& traffic : scene.traffic) {
    sent.push_back(traffic.sent_bytes);
    received.push_back(traffic.received_bytes);
    us.push_back(traffic.us);
  }
  SceneJson flows = SceneJson::array();
  for (const TileFlow& flow : scene.flows) flows.push_back({flow.from, flow.to, flow.bytes});
  SceneJson json{{"kind", name_of(step.kind)},
                 {"over", span_text(step)},
                 {"cost_us", step.cost_us},
                 {"latency_us", step.latency_us},
                 {"bytes", step.bytes},
                 {"total_bytes", step.total_bytes},
                 {"peak_bytes", step.peak_bytes},
                 {"sums", has_addends(step.from) && placements_text(step.from) != placements_text(step.to)},
                 {"pieces", pieces},
                 {"flows", flows},
                 {"sent", sent},
                 {"received", received}};
  if (has_times) json["us"] = us;
  return json;
}

// Whether the plan was priced with this topology: no rank takes longer than the step costs, and the busiest
// one takes as long.
bool gives_the_costs(const Plan& plan, const std::vector<StepScene>& scenes, bool has_all_ranks) {
  for (size_t i = 0; i < scenes.size(); ++i) {
    double worst = 0;
    for (const RankTraffic& traffic : scenes[i].traffic) worst = std::max(worst, traffic.us);
    const double cost = plan.steps[i].cost_us;
    const double allowed = 1e-6 * std::max(1.0, cost);
    if (worst > cost + allowed || (has_all_ranks && worst < cost - allowed)) return false;
  }
  return true;
}

// The tiles of these ranks. If there are too many to show, some of them, the first and the last included.
std::vector<int64_t> some_tiles_of(const std::vector<int64_t>& ranks, const Tiling& tiling) {
  std::set<int64_t> tiles;
  for (const int64_t rank : ranks) tiles.insert(tiling.tile_of_rank[static_cast<size_t>(rank)]);
  std::vector<int64_t> all(tiles.begin(), tiles.end());
  if (all.size() <= kMostHolders) return all;
  std::vector<int64_t> some;
  for (size_t i = 0; i < kMostHolders; ++i) some.push_back(all[i * (all.size() - 1) / (kMostHolders - 1)]);
  return some;
}

// The tensor cut into the boxes that ranks hold, each with its holders.
SceneJson picture_of(const Layout& layout, const Tiling& tiling, const Frame& frame) {
  std::map<Rect, std::vector<int64_t>> holders;
  for (int64_t position = 0; position < layout.mesh().size(); ++position) {
    const Box box = layout.box_at(position);
    if (box.volume() == 0) continue;
    holders[frame.rect_of(box)].push_back(layout.mesh().ranks()[static_cast<size_t>(position)]);
  }
  SceneJson cells = SceneJson::array();
  if (holders.size() > kMostCells) return cells;
  for (auto& [rect, ranks] : holders) {
    std::sort(ranks.begin(), ranks.end());
    cells.push_back(
        {rect[0], rect[1], rect[2], rect[3], ranges_of(ranks), some_tiles_of(ranks, tiling), ranks.size()});
  }
  return cells;
}

std::vector<int64_t> sorted_ranks(const Mesh& mesh) {
  std::vector<int64_t> ranks = mesh.ranks();
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

SceneJson json_of(const Layout& layout, const Tiling& tiling, const Frame& frame) {
  SceneJson json{{"text", placements_text(layout)},  {"words", words_of(layout)},
                 {"mesh", to_string(layout.mesh())}, {"ranks", ranges_of(sorted_ranks(layout.mesh()))},
                 {"addends", has_addends(layout)},   {"cells", picture_of(layout, tiling, frame)}};
  std::vector<int64_t> idle;
  for (int64_t position = 0; position < layout.mesh().size(); ++position) {
    if (layout.box_at(position).volume() == 0)
      idle.push_back(layout.mesh().ranks()[static_cast<size_t>(position)]);
  }
  std::sort(idle.begin(), idle.end());
  if (!idle.empty()) json["idle"] = ranges_of(idle);
  return json;
}

// What a rank holds, or nothing if it is outside the mesh.
SceneJson rect_of(const Layout& layout, int64_t rank, const Frame& frame) {
  const auto position = layout.mesh().position_of(rank);
  return position ? SceneJson(frame.rect_of(layout.box_at(*position))) : SceneJson();
}

// The ranks of each tile, with what they hold before and after.
SceneJson members_of(const Plan& plan, const Tiling& tiling, const Frame& frame) {
  SceneJson members = SceneJson::array();
  for (const RankTile& tile : tiling.tiles) {
    SceneJson ranks = SceneJson::array();
    for (const int64_t rank : tile.ranks)
      ranks.push_back({rank, rect_of(plan.from, rank, frame), rect_of(plan.to, rank, frame)});
    members.push_back(std::move(ranks));
  }
  return members;
}

// The tensor dims that are not drawn, and whether a layout on the way splits them.
SceneJson hidden_dims(const Plan& plan, const Frame& frame) {
  SceneJson hidden = SceneJson::array();
  const auto splits = [](const Layout& layout, size_t dim) { return !layout.order()[dim].empty(); };
  for (size_t dim = 0; dim < plan.from.shape().size(); ++dim) {
    if (frame.down() == dim || frame.across() == dim) continue;
    const bool is_split =
        splits(plan.from, dim) || std::any_of(plan.steps.begin(), plan.steps.end(),
                                              [&](const Step& step) { return splits(step.to, dim); });
    hidden.push_back({{"dim", dim}, {"length", plan.from.shape()[dim]}, {"split", is_split}});
  }
  return hidden;
}

// Bytes on the worst rank while nothing moves: the plan's input, and what the steps so far have left.
SceneJson resting_bytes(const Plan& plan) {
  SceneJson resting = SceneJson::array();
  const auto most = [](const Layout& layout) {
    int64_t bytes = 0;
    for (int64_t p = 0; p < layout.mesh().size(); ++p)
      bytes = std::max(bytes, bytes_of(layout.box_at(p), layout));
    return bytes;
  };
  resting.push_back(most(plan.from));
  for (const Step& step : plan.steps)
    resting.push_back(std::min(step.peak_bytes, most(plan.from) + most(step.to)));
  return resting;
}

SceneJson json_of(const Alternative& lost) {
  return {
      {"name", lost.name},   {"text", lost.text},     {"cost_us", lost.cost_us},      {"steps", lost.steps},
      {"bytes", lost.bytes}, {"reason", lost.reason}, {"peak_bytes", lost.peak_bytes}};
}

}  // namespace

SceneJson scene_of(const Plan& plan, const PageOptions& options) {
  const Frame frame(plan);
  const Topology topology = options.topology ? *options.topology : default_topology();
  const PlanScene all = plan_scene_of(plan, frame, topology);
  const bool has_times = gives_the_costs(plan, all.scenes, !all.tiling.is_grouped());
  SceneJson tiles = SceneJson::array();
  for (const RankTile& tile : all.tiling.tiles) {
    tiles.push_back(json_of(tile, plan));
    if (!plan.in_two_levels) continue;
    if (const auto host = host_of(tile, topology)) tiles.back()["host"] = *host;
  }
  SceneJson states = SceneJson::array({state_of(plan.from, all.tiling, frame)});
  SceneJson steps = SceneJson::array();
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    states.push_back(state_of(plan.steps[i].to, all.tiling, frame));
    steps.push_back(json_of(plan.steps[i], all.scenes[i], has_times));
    if (plan.in_two_levels) steps.back()["crossing_bytes"] = plan.steps[i].crossing_bytes;
  }
  SceneJson alternatives = SceneJson::array();
  for (const Alternative& lost : plan.alternatives) alternatives.push_back(json_of(lost));
  SceneJson scene{{"text", plan.text()},
                  {"dtype", name_of(plan.from.dtype())},
                  {"shape", plan.from.shape()},
                  {"width", frame.width()},
                  {"height", frame.height()},
                  {"from", json_of(plan.from, all.tiling, frame)},
                  {"to", json_of(plan.to, all.tiling, frame)},
                  {"cost_us", plan.cost_us},
                  {"bytes", plan.bytes},
                  {"total_bytes", plan.total_bytes},
                  {"peak_bytes", plan.peak_bytes},
                  {"topology", plan.topology},
                  {"is_estimate", gives_estimates(plan.topology)},
                  {"layouts", plan.layouts_searched},
                  {"ranks", all.tiling.ranks},
                  {"rows", all.tiling.rows},
                  {"columns", all.tiling.columns},
                  {"tiles", tiles},
                  {"hidden", hidden_dims(plan, frame)},
                  {"states", states},
                  {"steps", steps},
                  {"resting", resting_bytes(plan)},
                  {"alternatives", alternatives}};
  if (all.tiling.is_grouped()) scene["members"] = members_of(plan, all.tiling, frame);
  if (frame.down()) scene["down"] = *frame.down();
  if (frame.across()) scene["across"] = *frame.across();
  if (plan.in_two_levels) scene["crossing_bytes"] = plan.crossing_bytes;
  if (plan.relabelling) scene["saved_bytes"] = plan.relabelling->saved_bytes();
  if (options.max_bytes) scene["max_bytes"] = *options.max_bytes;
  return scene;
}

}  // namespace shardway::page
