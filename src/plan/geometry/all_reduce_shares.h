// How the ranks of an all_reduce share the box that each of them holds an addend of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shardway/layout.h"

namespace shardway {

// Each member combines one share and then collects the others. Shares are slabs along the dim whose largest
// slab is smallest, of lengths as torch.chunk gives them, so the last ones may be shorter or empty. A scalar
// goes whole to the first member.
//
// The planner prices these shares and stages move them. Two executors cut for themselves. The two routes of a
// transport (two_routes.cpp) flatten the tensor first: theirs are the shares of a box of one dim. Shared
// memory cuts at cache lines: its largest share exceeds the mean by less than two of them, and the largest
// slab is never below the mean. So where they run the step, it moves at most two cache lines a rank and phase
// more than its price says.
//
// Example: 3x5 elements among 4 members. Slabs of dim 0 have at most 5 elements, those of dim 1 at most 6, so
// dim 0 is cut: 5, 5, 5 and 0 elements.
class AllReduceShares {
 public:
  AllReduceShares(const Dims& extent, int64_t members);

  int64_t largest() const { return largest_; }

  // Elements of one share, and of the shares of members [first, end).
  int64_t of(int64_t member) const { return among(member, member + 1); }
  int64_t among(int64_t first, int64_t end) const { return up_to(end) - up_to(first); }

  // Members of [first, end) whose share is not empty.
  int64_t holders_among(int64_t first, int64_t end) const {
    return std::min(end, holders_) - std::min(first, holders_);
  }

  // The share as a box. Not for scalars: they have no dim along which a box could be empty.
  Box box_of(int64_t member) const;

 private:
  int64_t up_to(int64_t end) const { return end < holders_ ? largest_ * end : volume_; }

  Dims extent_;
  int64_t volume_;
  size_t dim_ = 0;
  int64_t length_ = 0;  // of the largest share along `dim_`
  int64_t largest_;     // elements
  int64_t holders_ = 0;
};

// One rank's part. By `combination` it combines its share of the box, which is
// `landing` of its output. By `collection` it pulls the other shares from the others' outputs.
struct AllReduceRoutes {
  Route combination = {};
  Route collection = {};
  Box landing = {};
};

// Peers have their mesh's numbers. `dims` are the mesh dims whose addends are combined. Not for scalars. A
// rank outside the mesh has routes with nothing in them.
AllReduceRoutes all_reduce_routes(const Layout& layout, const std::vector<int64_t>& dims, int64_t rank);

}  // namespace shardway
