// What DTensor's default planner makes of a redistribution.
#pragma once

#include <vector>

#include "shardway/collective_utils.h"

namespace shardway::collective_utils {

using Placements = std::vector<Placement>;

// The placements that it passes through, both ends among them. It does not know of shard orders.
std::vector<Placements> greedy_placements(const Layout& from, const Layout& to);

}  // namespace shardway::collective_utils
