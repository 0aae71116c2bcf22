#include "page/pieces.h"

#include <map>

namespace shardway::page {
namespace {

constexpr int64_t kMostTiles = 64;
constexpr size_t kMostMoves = 1600;

// One piece per pull of the tile's only rank.
void add_pieces(const std::vector<TakenBox>& taken, int64_t to, const Tiling& tiling, const Step& step,
                const Frame& frame, std::vector<TilePiece>& pieces) {
  for (const TakenBox& part : taken) {
    pieces.push_back({.from = tiling.tile_of_rank[static_cast<size_t>(part.peer)],
                      .to = to,
                      .rect = frame.rect_of(part.box),
                      .bytes = bytes_of(part.box, step.from)});
  }
}

// Pieces between tiles of several ranks. Two tiles are joined if the first or the last rank of the receiving
// one takes from the other. The piece is the space that one has before the step and the other after it.
class GroupedPieces {
 public:
  GroupedPieces(const Step& step, const Tiling& tiling, const Frame& frame)
      : step_(step),
        tiling_(tiling),
        before_(spaces_of(step.from, tiling, frame)),
        after_(spaces_of(step.to, tiling, frame)) {}

  void add(const std::vector<TakenBox>& by_first, const std::vector<TakenBox>& by_last, int64_t to,
           std::vector<TilePiece>& pieces) const {
    std::map<int64_t, TilePiece> by_tile;
    const auto piece_from = [&](const TakenBox& part) -> TilePiece& {
      const int64_t from = tiling_.tile_of_rank[static_cast<size_t>(part.peer)];
      return by_tile.try_emplace(from, TilePiece{.from = from, .to = to, .ranks = 0}).first->second;
    };
    for (const TakenBox& part : by_first) {
      TilePiece& piece = piece_from(part);
      piece.bytes += bytes_of(part.box, step_.from);
      ++piece.ranks;
    }
    for (const TakenBox& part : by_last) piece_from(part);
    for (auto& [from, piece] : by_tile) {
      piece.rect = common(*before_[static_cast<size_t>(from)], *after_[static_cast<size_t>(to)]);
      if (piece.rect[2] > 0 && piece.rect[3] > 0) pieces.push_back(piece);
    }
  }

 private:
  const Step& step_;
  const Tiling& tiling_;
  std::vector<std::optional<Rect>> before_;
  std::vector<std::optional<Rect>> after_;
};

StepScene scene_of(const Step& step, const Tiling& tiling, const Frame& frame, const Topology& topology) {
  StepScene scene;
  const StepTraffic traffic(step, topology);
  const GroupedPieces grouped(step, tiling, frame);
  for (size_t i = 0; i < tiling.tiles.size(); ++i) {
    const RankTile& tile = tiling.tiles[i];
    const auto to = static_cast<int64_t>(i);
    const Route first = redistribution_route(step.from, step.to, tile.ranks.front());
    if (tiling.is_grouped()) {
      const Route last = redistribution_route(step.from, step.to, tile.ranks.back());
      grouped.add(taken_boxes(step, first), taken_boxes(step, last), to, scene.pieces);
    } else {
      add_pieces(taken_boxes(step, first), to, tiling, step, frame, scene.pieces);
    }
    scene.traffic.push_back(traffic.of(first));
    const auto flows = flows_into(to, step, first, tiling);
    scene.flows.insert(scene.flows.end(), flows.begin(), flows.end());
  }
  return scene;
}

}  // namespace

std::vector<TakenBox> taken_boxes(const Step& step, const Route& route) {
  std::vector<TakenBox> taken;
  const auto position = step.to.mesh().position_of(route.rank);
  if (!position) return taken;
  const Box home = step.to.box_at(*position);
  for (const Move& pull : route.pulls) {
    if (pull.mine.volume() == 0) continue;
    TakenBox part{.peer = pull.peer, .box = pull.mine};
    for (size_t dim = 0; dim < home.offset.size(); ++dim) part.box.offset[dim] += home.offset[dim];
    taken.push_back(std::move(part));
  }
  return taken;
}

int64_t bytes_of(const Box& box, const Layout& layout) { return box.volume() * item_bytes(layout.dtype()); }

std::vector<std::optional<Rect>> spaces_of(const Layout& layout, const Tiling& tiling, const Frame& frame) {
  std::vector<std::optional<Rect>> spaces;
  for (const RankTile& tile : tiling.tiles) {
    std::optional<Rect>& space = spaces.emplace_back();
    for (const int64_t rank : tile.ranks) {
      const auto position = layout.mesh().position_of(rank);
      if (!position) continue;
      const Box box = layout.box_at(*position);
      if (box.volume() > 0) space = space ? around(*space, frame.rect_of(box)) : frame.rect_of(box);
    }
  }
  return spaces;
}

PlanScene plan_scene_of(const Plan& plan, const Frame& frame, const Topology& topology) {
  for (int64_t most = kMostTiles;; most /= 2) {
    PlanScene scene{.tiling = tiling_of(plan, most)};
    size_t pieces = 0;
    for (const Step& step : plan.steps) {
      scene.scenes.push_back(scene_of(step, scene.tiling, frame, topology));
      pieces = std::max(pieces, scene.scenes.back().pieces.size());
    }
    if (pieces <= kMostMoves || most <= kMostTiles / 8) return scene;
  }
}

}  // namespace shardway::page
