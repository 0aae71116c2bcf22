// The pieces that travel between tiles in each step of a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "page/flows.h"
#include "page/frame.h"
#include "page/tiles.h"
#include "plan/price/step_traffic.h"

namespace shardway::page {

// What one tile takes from another.
struct TilePiece {
  int64_t from = 0;
  int64_t to = 0;
  Rect rect = {};
  int64_t bytes = 0;  // that its first rank takes
  int64_t ranks = 1;  // that it takes them from
};

// A part of the tensor that a rank takes from a peer or, where the peer is the rank itself, keeps.
struct TakenBox {
  int64_t peer = 0;
  Box box = {};  // in the tensor
};

// All that a rank has after a step, by where it comes from. Of an all_reduce these are the addends that its
// box is made of. The route is the rank's own between the step's layouts.
std::vector<TakenBox> taken_boxes(const Step& step, const Route& route);

struct StepScene {
  std::vector<TilePiece> pieces = {};
  std::vector<RankTraffic> traffic = {};  // of each tile's first rank
  std::vector<TileFlow> flows = {};       // into each tile's first rank
};

struct PlanScene {
  Tiling tiling = {};
  std::vector<StepScene> scenes = {};
};

// Takes fewer tiles until there are few enough pieces to watch.
PlanScene plan_scene_of(const Plan& plan, const Frame& frame, const Topology& topology);

// The space that the boxes of each tile's ranks take.
std::vector<std::optional<Rect>> spaces_of(const Layout& layout, const Tiling& tiling, const Frame& frame);

int64_t bytes_of(const Box& box, const Layout& layout);

}  // namespace shardway::page
