// The layouts that a search may pass through on one mesh, and what every rank holds in them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "plan/geometry/cuts.h"
#include "shardway/layout.h"

namespace shardway {

inline constexpr size_t kMostMeshDims = 12;
inline constexpr size_t kMostTensorDims = 100;

using DimMask = uint32_t;  // a set of mesh dims

inline bool has(DimMask mask, size_t dim) { return (mask >> dim & 1U) != 0; }

// Which mesh dims shard which tensor dims, in which order. It does not know Partial: the other mesh dims
// replicate or hold addends, and the boxes are the same.
struct ShardState {
  struct Role {
    int8_t tensor_dim = -1;  // -1: not sharded
    uint8_t place = 0;       // in the order of its tensor dim's cuts
    int8_t ragged = -1;      // index into the state space's ragged placements; -1: balanced

    bool operator==(const Role&) const = default;
  };
  std::array<Role, kMostMeshDims> roles = {};
  DimMask sharded = 0;

  bool operator==(const ShardState&) const = default;
};

// A ragged placement of one of the two endpoints, on its own mesh dim.
struct RaggedRole {
  int64_t mesh_dim = 0;
  Placement placement = {};

  bool operator==(const RaggedRole&) const = default;
};

// Every rank's box in a state, as arrays over the positions of the mesh. The numbers are doubles, which hold
// them exactly and which vector instructions compare and multiply.
struct StateBoxes {
  std::vector<double> begins = {};  // [tensor dim][position]
  std::vector<double> ends = {};
  std::vector<double> volumes = {};  // [position]
  size_t positions = 0;
  size_t tensor_dims = 0;

  const double* begin_of(size_t dim) const { return begins.data() + dim * positions; }
  const double* end_of(size_t dim) const { return ends.data() + dim * positions; }
};

// What a rank's box in one state has in common with a rank's box in another, and whether it lies in it.
double common_volume(const StateBoxes& a, size_t at_a, const StateBoxes& b, size_t at_b);
bool lies_within(const StateBoxes& inner, size_t at_inner, const StateBoxes& outer, size_t at_outer);

// What the ranks of a block of consecutive positions hold together. It is a union of intervals along each
// tensor dim, and the product of these, since every mesh dim cuts one tensor dim.
struct Reach {
  struct Span {
    double begin = 0;
    double end = 0;
  };
  std::vector<std::vector<Span>> spans = {};  // [tensor dim], ascending
  double volume = 1;
};

// The volume that two reaches have in common.
double common_volume(const Reach& a, const Reach& b);

// The states are the balanced ones in every shard order, and those with the endpoints' ragged placements. If
// these are more than kMostStates, only the endpoints' placements and Replicate are combined, in ascending
// order: a mesh of many dims is then planned well, but no longer optimally.
//
// Not thread-safe: boxes are computed when first asked for.
class StateSpace {
 public:
  StateSpace(const Layout& from, const Layout& to, const Mesh& mesh);

  static constexpr size_t kMostStates = 40'000;

  size_t size() const { return states_.size(); }
  bool is_complete() const { return is_complete_; }  // all states, not only those near two layouts
  const ShardState& state(size_t index) const { return states_[index]; }
  const StateBoxes& boxes(size_t index) const;

  // Where there are many ranks: a sample of positions with differing coordinates, and the boxes of these
  // only.
  const std::vector<size_t>& sample() const { return sample_; }
  const StateBoxes& sampled(size_t index) const;

  // The longest interval along each tensor dim, [tensor dim]. Every mesh dim cuts one tensor dim, so one rank
  // has all of them, and the largest box.
  const double* longest(size_t index) const { return longest_.data() + index * shape_.size(); }
  double largest_volume(size_t index) const { return largest_volumes_[index]; }
  double total_volume(size_t index) const;                      // of all ranks' boxes
  double filled(size_t index) const { return filled_[index]; }  // ranks whose box is not empty
  const Reach& reach(size_t index, size_t block,
                     size_t number) const;  // of block `number`, of `block` positions
  size_t index_of(const Layout& layout) const;

  // Whether a step between two states moves nothing: every rank's box lies in the box that it had.
  bool only_cuts(size_t from, size_t to) const {
    return keeps_cuts(from, to) || (is_cramped_ && covers(from, to));
  }

  const std::vector<int64_t>& shape() const { return shape_; }  // of the tensor
  const std::vector<int64_t>& mesh_shape() const { return mesh_shape_; }
  size_t mesh_dims() const { return mesh_shape_.size(); }
  size_t positions() const { return positions_; }
  double ranks_along(DimMask dims) const;  // the product of their sizes
  // Within a block of consecutive positions: how many coordinates along one mesh dim it holds, and how many
  // ranks that differ in some dims only.
  int64_t coordinates_in_block(int64_t block, size_t mesh_dim) const;
  int64_t ranks_in_block(int64_t block, DimMask dims) const;
  int64_t stride(size_t mesh_dim) const { return strides_[mesh_dim]; }
  int32_t coordinate(size_t mesh_dim, size_t position) const {
    return coordinates_[mesh_dim * positions_ + position];
  }

  // The mesh dims that cut a tensor dim in a state, the outermost first.
  std::vector<int64_t> order_of(size_t index, size_t tensor_dim) const;
  std::vector<Cut> cuts_of(size_t index, size_t tensor_dim) const;
  Placement placement_of(size_t index, size_t mesh_dim) const;  // Replicate where not sharded

  // The mesh dims that shard in `from` and along which a rank may pull from another coordinate. Cuts that
  // both states begin with are left out.
  DimMask unsettled(size_t from, size_t to) const;

 private:
  void enumerate_all();
  bool fits_all() const;
  void enumerate_near(const Layout& from, const Layout& to);
  void add(const ShardState& state) { states_.push_back(state); }
  ShardState state_of(const Layout& layout) const;
  bool keeps_cuts(size_t from, size_t to) const;
  bool covers(size_t from, size_t to) const;
  void find_longest();
  void find_filled();
  Cut cut_of(const ShardState& state, size_t mesh_dim) const;
  StateBoxes compute(const ShardState& state, std::span<const size_t> positions) const;
  Reach compute_reach(size_t index, size_t block, size_t number) const;

  std::vector<int64_t> shape_;
  std::vector<int64_t> mesh_shape_;
  std::vector<int64_t> strides_;
  std::vector<RaggedRole> ragged_;
  size_t positions_ = 1;
  bool is_complete_ = true;
  bool is_cramped_ = false;  // boxes may be empty, and different cuts may give the same boxes
  std::vector<int32_t> coordinates_;
  std::vector<ShardState> states_;
  std::vector<double> longest_;
  std::vector<double> largest_volumes_;
  std::vector<double> filled_;
  std::vector<size_t> sample_;
  std::vector<size_t> all_;  // positions
  mutable std::vector<std::unique_ptr<StateBoxes>> boxes_;
  mutable std::vector<std::unique_ptr<StateBoxes>> sampled_;
  mutable std::map<size_t, std::vector<std::vector<std::unique_ptr<Reach>>>>
      reaches_;  // by block, [state][number]
};

}  // namespace shardway
