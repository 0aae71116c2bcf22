// Random meshes, layouts and topologies, and all layouts of a kind.
#pragma once

#include <string>
#include <vector>

#include "dice.h"
#include "shardway/layout.h"
#include "shardway/topology.h"

namespace shardway::testing {

struct LayoutPair {
  Layout from;
  Layout to;
};

std::string text_of(const LayoutPair& pair);

// 1 to 3 dims of 1 to 4, at most `most` ranks; in order, shuffled, or some of a larger world.
Mesh any_mesh(Dice& dice, int64_t most = 12);

// 0-d to 3-d with lengths up to `longest`, zero now and then.
std::vector<int64_t> any_tensor_shape(Dice& dice, int64_t longest = 7);

// Any placements, shard orders and now and then a ragged shard; Partials of one kind where asked for.
Layout any_layout(Dice& dice, const std::vector<int64_t>& shape, const Mesh& mesh, bool may_be_partial);

// Two layouts of one tensor with a way between them: on one mesh, where Partials may stay, or on two.
LayoutPair any_pair(Dice& dice);
LayoutPair any_pair_on(Dice& dice, const std::vector<int64_t>& shape, const Mesh& mesh);

// Any figures: hosts in blocks or strewn about, links per mesh dim, copies and reductions with a price.
Topology any_topology(Dice& dice, int64_t ranks);

// Every combination of Replicate, balanced shards (in ascending order) and, where asked for, Partial.
std::vector<Layout> every_placement(const std::vector<int64_t>& shape, const Mesh& mesh, bool with_partial);

}  // namespace shardway::testing
