// The cheapest way between layouts by brute force: every layout, every pair of them priced from boxes and
// ranks, every path. Shares nothing with src/plan but the Layout and the Topology as records.
#pragma once

#include <vector>

#include "shardway/layout.h"
#include "shardway/topology.h"

namespace shardway::testing {

// All layouts of a tensor on a mesh that a path may pass: each mesh dim replicates, shards a tensor dim in
// every order, or is one of the given Partials; ragged shards are those of `ends`, whose first is on the
// mesh.
std::vector<Layout> every_layout(const std::vector<Layout>& ends, const std::vector<Placement>& partials);

// Cheapest costs between all pairs of some layouts of one mesh, [from][to].
using Costs = std::vector<std::vector<double>>;
Costs cheapest_paths(const std::vector<Layout>& layouts, const Topology& topology);

// The cheapest cost of one pair, on one mesh or two.
double cheapest_path(const Layout& from, const Layout& to, const Topology& topology);

}  // namespace shardway::testing
