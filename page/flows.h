// Who sends to whom in a step of a plan, and how much.
#pragma once

#include <cstdint>
#include <vector>

#include "page/tiles.h"
#include "shardway/plan.h"

namespace shardway::page {

// What the first rank of a tile receives from other ranks, by the tile that they are in.
struct TileFlow {
  int64_t from = 0;
  int64_t to = 0;
  int64_t bytes = 0;
};

// The flows into one tile; the route is that of its first rank between the step's layouts. In two levels they
// say whose bytes arrive, not over which rank of a host.
//
// Example: four ranks all_reduce 16 bytes. Rank 0 gets the three other addends of its share, 4 bytes each,
// and then the three other shares: 8 bytes from each rank.
std::vector<TileFlow> flows_into(int64_t tile, const Step& step, const Route& route, const Tiling& tiling);

}  // namespace shardway::page
