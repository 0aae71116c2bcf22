// How a tensor lies on a mesh of ranks: which box each rank holds, and whether it holds a value or an addend.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardway/route.h"

namespace [[gnu::visibility("default")]] shardway {

// The type of a tensor's elements, from torch's set.
enum class DType : uint8_t {
  boolean,
  u8,
  u16,
  u32,
  u64,
  i8,
  i16,
  i32,
  i64,
  f8_e4m3fn,
  f8_e4m3fnuz,
  f8_e5m2,
  f8_e5m2fnuz,
  f8_e8m0fnu,
  f16,
  bf16,
  f32,
  f64,
  c32,
  c64,
  c128,
};

int64_t item_bytes(DType dtype);
bool is_integral(DType dtype);  // boolean included
const char* name_of(DType dtype);
DType dtype_from_name(const std::string& name);  // the enumerator's name

// Ranks arranged in an n-d grid, row-major. Dims may have names.
class Mesh {
 public:
  // The ranks 0, 1, … in order.
  explicit Mesh(std::vector<int64_t> shape, std::vector<std::string> names = {});
  // Any ranks, each once; names may be empty.
  Mesh(std::vector<int64_t> shape, std::vector<int64_t> ranks, std::vector<std::string> names);

  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& ranks() const { return ranks_; }
  const std::vector<std::string>& names() const { return names_; }  // empty: no names

  int64_t ndim() const { return static_cast<int64_t>(shape_.size()); }
  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }
  int64_t size(int64_t dim) const { return shape_[static_cast<size_t>(dim)]; }
  int64_t stride(int64_t dim) const;  // positions between neighbours along a dim

  // Returns where a rank stands, as an index into ranks(), or nothing if it is outside the mesh.
  std::optional<int64_t> position_of(int64_t rank) const;
  std::vector<int64_t> coordinate_at(int64_t position) const;

  // The index of a dim by its name.
  int64_t dim_named(const std::string& name) const;

  // The ranks that differ from `rank` only in these dims, as a mesh of these dims in the given order.
  Mesh submesh(const std::vector<int64_t>& dims, int64_t rank) const;

  // The neighbouring dims [first, last] as one, named like "dp_tp".
  Mesh flattened(int64_t first, int64_t last) const;

  bool operator==(const Mesh& other) const { return shape_ == other.shape_ && ranks_ == other.ranks_; }

 private:
  std::vector<int64_t> shape_;
  std::vector<int64_t> ranks_;
  std::vector<std::string> names_;
  std::vector<int64_t> position_of_rank_;  // empty when position i holds rank i
};

std::string to_string(const Mesh& mesh);  // dp=2,tp=4 or 2x4

// What one mesh dim does to a tensor.
struct Placement {
  enum class Kind : uint8_t { replicate, shard, partial };

  Kind kind = Kind::replicate;
  int64_t dim = 0;                  // shard: the tensor dim that is split
  std::vector<int64_t> sizes = {};  // shard: its length per rank; empty: as torch.chunk splits
  Op op = Op::sum;                  // partial: how the addends combine

  bool is_replicate() const { return kind == Kind::replicate; }
  bool is_shard() const { return kind == Kind::shard; }
  bool is_partial() const { return kind == Kind::partial; }
  bool is_ragged() const { return is_shard() && !sizes.empty(); }

  bool operator==(const Placement&) const = default;
};

Placement replicate();
Placement shard(int64_t dim, std::vector<int64_t> sizes = {});
Placement partial(Op op = Op::sum);

// S0, S0[3,0,5], R, P, P(max)
std::string to_string(const Placement& placement);

// The order in which mesh dims split each tensor dim: for tensor dim d the mesh dims that shard it, the
// outermost split first. Mesh dims split in ascending order unless another order is given.
using ShardOrder = std::vector<std::vector<int64_t>>;

// A global shape and dtype on a mesh, with a placement per mesh dim.
//
// The mesh dims that shard a tensor dim split it in turn: each splits what the previous one left. They
// split as torch.chunk does: parts of ceil(length / ranks) until nothing is left, so later parts may be
// smaller or empty. A ragged shard is the outermost split of its tensor dim.
//
// Example: length 5 over a 2x2 mesh, [S0, S0]: halves of 3 and 2, then 2, 1, 1, 1.
//   With the order {{1, 0}} mesh dim 1 splits first: rank (0,1) holds [3,4) instead of [2,3).
//
// The constructor throws std::invalid_argument if its arguments do not fit together.
class Layout {
 public:
  Layout(std::vector<int64_t> shape, DType dtype, Mesh mesh, std::vector<Placement> placements,
         ShardOrder order = {});

  const std::vector<int64_t>& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  const Mesh& mesh() const { return mesh_; }
  const std::vector<Placement>& placements() const { return placements_; }
  const ShardOrder& order() const { return order_; }  // one entry per tensor dim

  int64_t ndim() const { return static_cast<int64_t>(shape_.size()); }
  bool has_default_order() const;

  // The box of the rank at a position of the mesh.
  Box box_at(int64_t position) const;

  // The same tensor placed differently on the same mesh, or on another.
  Layout with(std::vector<Placement> placements, ShardOrder order = {}) const;
  Layout with(Mesh mesh, std::vector<Placement> placements, ShardOrder order = {}) const;

  // Equal layouts hold the same boxes; names of mesh dims do not matter.
  bool operator==(const Layout& other) const;
  size_t hash() const { return hash_; }

 private:
  std::vector<int64_t> shape_;
  DType dtype_;
  Mesh mesh_;
  std::vector<Placement> placements_;
  ShardOrder order_;
  size_t hash_ = 0;
};

// The placements, such as "S0,R". If mesh dims do not split a tensor dim in ascending order, each says its
// place in the order: "S0.1,S0.0".
std::string placements_text(const Layout& layout);

// f32[4096,4096] on dp=2,tp=4: S0,P
std::string to_string(const Layout& layout);

// One rank's part in moving a tensor straight from one layout to another: every rank pulls its target
// box from the ranks that hold it. The meshes may differ in shape and ranks; `rank` may be outside either.
// Rank numbers are those of the meshes, and the route's size is one more than the largest of them.
//
// If several ranks hold the same box, a rank of the source mesh pulls from the one with its own coordinates
// on the mesh dims that replicate. So it prefers itself, and the load is even. A rank outside the source mesh
// takes the replica whose number is its own position modulo the number of replicas.
//
// Takes time proportional to the number of peers whose boxes overlap this rank's. Throws
// std::invalid_argument if addends would have to be made, or if shape or dtype differ.
Route redistribution_route(const Layout& from, const Layout& to, int64_t rank);

}  // namespace shardway
