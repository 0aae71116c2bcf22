// The ranks of a plan as tiles on a grid. A tile is one rank or, if there are too many, several neighbours on
// the mesh.
#pragma once

#include <cstdint>
#include <vector>

#include "shardway/plan.h"

namespace shardway::page {

struct RankTile {
  std::vector<int64_t> ranks = {};  // ascending; the first one stands for all
  int64_t row = 0;
  int64_t column = 0;
};

struct Tiling {
  std::vector<RankTile> tiles = {};
  std::vector<int64_t> tile_of_rank = {};  // -1: no rank of the plan
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t ranks = 0;

  bool is_grouped() const { return ranks > static_cast<int64_t>(tiles.size()); }
};

// At most `most` tiles for the plan's first mesh, and as many for ranks that only the target has.
//
// Example: 16x16x16 ranks and 64 tiles give 4x4x4 tiles of 4x4x4 ranks.
Tiling tiling_of(const Plan& plan, int64_t most);

}  // namespace shardway::page
