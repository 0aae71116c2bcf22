#include "page/pieces.h"

#include <map>

namespace shardway::page {
namespace {

constexpr int64_t kMostTiles = 64;
constexpr size_t kMostMoves = 1600;

// One piece per pull of the tile's only rank.
void add_pieces(const Traffic& traffic, int64_t to, const Tiling& tiling, const Step& step,
                const Frame& frame, std::vector<Piece>& pieces) {
  for (const Pull& pull : traffic.pulls) {
    pieces.push_back({.from = tiling.tile_of_rank[static_cast<size_t>(pull.peer)],
                      .to = to,
                      .rect = frame.rect_of(pull.box),
                      .bytes = bytes_of(pull.box, step.from)});
  }
}

// Between tiles of several ranks: the space that a tile has before the step and another one after it, where
// the first or the last rank of that one takes from it.
class GroupedPieces {
 public:
  GroupedPieces(const Step& step, const Tiling& tiling, const Frame& frame)
      : step_(step),
        tiling_(tiling),
        before_(spaces_of(step.from, tiling, frame)),
        after_(spaces_of(step.to, tiling, frame)) {}

  void add(const Traffic& first, const Traffic& last, int64_t to, std::vector<Piece>& pieces) const {
    std::map<int64_t, Piece> by_tile;
    for (const Traffic* traffic : {&first, &last}) {
      for (const Pull& pull : traffic->pulls) {
        const int64_t from = tiling_.tile_of_rank[static_cast<size_t>(pull.peer)];
        Piece& piece = by_tile.try_emplace(from, Piece{.from = from, .to = to, .ranks = 0}).first->second;
        if (traffic == &last) continue;
        piece.bytes += bytes_of(pull.box, step_.from);
        ++piece.ranks;
      }
    }
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
  const GroupedPieces grouped(step, tiling, frame);
  for (size_t i = 0; i < tiling.tiles.size(); ++i) {
    const Tile& tile = tiling.tiles[i];
    Traffic traffic = traffic_of(step, tile.ranks.front(), topology);
    if (tiling.is_grouped()) {
      grouped.add(traffic, traffic_of(step, tile.ranks.back(), topology), static_cast<int64_t>(i),
                  scene.pieces);
    } else {
      add_pieces(traffic, static_cast<int64_t>(i), tiling, step, frame, scene.pieces);
    }
    traffic.pulls.clear();
    scene.traffic.push_back(std::move(traffic));
  }
  return scene;
}

}  // namespace

int64_t bytes_of(const Box& box, const Layout& layout) { return box.volume() * item_bytes(layout.dtype()); }

std::vector<std::optional<Rect>> spaces_of(const Layout& layout, const Tiling& tiling, const Frame& frame) {
  std::vector<std::optional<Rect>> spaces;
  for (const Tile& tile : tiling.tiles) {
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

Stage stage_of(const Plan& plan, const Frame& frame, const Topology& topology) {
  for (int64_t most = kMostTiles;; most /= 2) {
    Stage stage{.tiling = tiling_of(plan, most)};
    size_t pieces = 0;
    for (const Step& step : plan.steps) {
      stage.scenes.push_back(scene_of(step, stage.tiling, frame, topology));
      pieces = std::max(pieces, stage.scenes.back().pieces.size());
    }
    if (pieces <= kMostMoves || most <= kMostTiles / 8) return stage;
  }
}

}  // namespace shardway::page
