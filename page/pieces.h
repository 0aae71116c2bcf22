// The pieces that travel between tiles in each step of a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "page/frame.h"
#include "page/tiles.h"
#include "page/traffic.h"

namespace shardway::page {

// What one tile takes from another.
struct Piece {
  int64_t from = 0;
  int64_t to = 0;
  Rect rect = {};
  int64_t bytes = 0;  // that its first rank takes
  int64_t ranks = 1;  // that it takes them from
};

struct StepScene {
  std::vector<Piece> pieces = {};
  std::vector<Traffic> traffic = {};  // of each tile's first rank
};

struct Stage {
  Tiling tiling = {};
  std::vector<StepScene> scenes = {};
};

// As many tiles as give few enough pieces to watch.
Stage stage_of(const Plan& plan, const Frame& frame, const Topology& topology);

// The space that the boxes of each tile's ranks take.
std::vector<std::optional<Rect>> spaces_of(const Layout& layout, const Tiling& tiling, const Frame& frame);

int64_t bytes_of(const Box& box, const Layout& layout);

}  // namespace shardway::page
