// How much of a rank's interval along one tensor dim the blocks of ranks around it hold.
#pragma once

#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "plan/price/network.h"
#include "plan/price/state_space.h"

namespace shardway {

// Around a rank lie nested blocks of ranks. What it pulls from a block, or pushes to it, is the product over
// tensor dims of the overlaps along each. The overlaps along one tensor dim depend on a rank's coordinates
// along the mesh dims that cut this dim before or after. There is a row for each such coordinate.
//
// Example: length 8, from [S0, S0] to [R, R] on 2x2. Any rank pulls 8 elements from all 4 parts, 4 of them
// from the 2 parts of its mesh row, and 2 from its own.
//
// Coordinates that make no difference to any row share their rows.
struct DimOverlaps {
  enum Column : uint8_t { pulled, parts_pulled, pushed, parts_pushed };

  size_t columns = 0;
  std::vector<double> rows = {};                               // [row][column]
  std::array<size_t, kMostMeshDims> strides = {};              // of rows, by mesh dim
  std::array<std::vector<size_t>, kMostMeshDims> places = {};  // [mesh dim][coordinate]; empty: all alike

  static size_t column(size_t ring, Column column) { return 4 * ring + column; }
  size_t own() const { return columns - 1; }  // what a rank pulls from itself
  size_t place(size_t mesh_dim, size_t coordinate) const {
    return places[mesh_dim].empty() ? 0 : places[mesh_dim][coordinate];
  }
};

// Keeps the overlaps of one network's exchanges on one state space. One thread at a time.
class OverlapsByBlock {
 public:
  explicit OverlapsByBlock(const Network& network) : network_(network) {}

  // Ranks that meet may differ in the mesh dims of `varying`, and agree on all others.
  const DimOverlaps& along(const StateSpace& space, size_t from, size_t to, DimMask varying,
                           size_t tensor_dim);

 private:
  using Key = std::tuple<size_t, uint64_t, uint64_t, DimMask>;

  const Network& network_;
  std::map<Key, DimOverlaps> known_;
  std::vector<double> all_rows_;  // scratch
};

}  // namespace shardway
