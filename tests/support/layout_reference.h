// What a layout means, from lists of indices and dense arrays: shares nothing with src/plan but the Layout as
// a record of shape, mesh, placements and order.
#pragma once

#include <map>
#include <vector>

#include "dice.h"
#include "rank_simulator.h"
#include "shardway/layout.h"

namespace shardway::testing {

using Coordinate = std::vector<int64_t>;

// Row-major, the last dim fastest.
Coordinate coordinate_of(const Mesh& mesh, int64_t position);

// One piece of a list cut as torch.chunk cuts a tensor: ceil(length / parts) each until nothing is left. A
// piece that torch.chunk would not return is empty.
std::vector<int64_t> torch_chunk(const std::vector<int64_t>& list, int64_t parts, int64_t index);

// Per tensor dim the indices of the global tensor that the rank at a position holds.
std::vector<std::vector<int64_t>> held_indices(const Layout& layout, int64_t position);

// The same as a box; offsets along dims of which nothing is held are zero.
Box reference_box(const Layout& layout, int64_t position);
std::vector<Box> reference_boxes(const Layout& layout);

// The global tensor once per coordinate of the mesh dims that hold addends; once where none does.
struct Addends {
  std::vector<int64_t> mesh_dims = {};
  std::map<Coordinate, Dense> by_coordinate = {};
};

// Numbers that can be divided by the ranks of any mesh dims that hold averages.
Addends any_addends(const Layout& layout, Dice& dice);

// What is left when the addends of those mesh dims of `from` are combined that `to` does not keep.
Addends combined(const Addends& addends, const Layout& from, const Layout& to);

// What every rank up to `ranks` holds; a rank outside the mesh holds nothing.
std::vector<Dense> locals_of(const Layout& layout, const Addends& addends, int64_t ranks);

// One more than the largest rank of both meshes.
int64_t ranks_of(const Layout& from, const Layout& to);

// Every rank's part of the direct exchange.
std::vector<Route> routes_between(const Layout& from, const Layout& to);

// Runs the direct exchange on simulated ranks; what each holds afterwards.
std::vector<Dense> exchanged(const Layout& from, const Layout& to, const std::vector<Dense>& locals);

}  // namespace shardway::testing
