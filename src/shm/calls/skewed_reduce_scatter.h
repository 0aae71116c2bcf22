// A reduce-scatter whose load sits on one rank, shared by all of them.
#pragma once

#include <cstdint>
#include <optional>

#include "shm/calls/part.h"

namespace shardway::shm {

// Returns the rank whose box is nearly all of what is reduced, if sharing its work is worth a second leg. The
// same on every rank: all push the same boxes.
std::optional<int64_t> heavy_rank(const Part& part, int64_t size);

// The parts that take its place: the first two in one leg of the call, the collection in the next
// (run_legs). Example: of ranks 0 to 2, rank 2 gets rows [0,9). Rank r reduces
// rows [3r,3r+3), ranks 0 and 1 into scratch memory, and rank 2 then pulls what they have.
class SkewedReduceScatter {
 public:
  SkewedReduceScatter(const Part& part, int64_t rank, int64_t size, int64_t heavy);

  // The boxes of all other ranks, unless all of these are empty.
  bool has_rest() const;
  Part rest() const;

  // This rank's share of the heavy box, written to `scratch`. The heavy rank needs no scratch memory: it
  // writes to its output.
  int64_t scratch_bytes() const;
  Part share(std::byte* scratch) const;

  // The shares, pulled by the heavy rank.
  Part collection(const std::byte* scratch) const;

 private:
  struct Rows {
    int64_t begin = 0;
    int64_t count = 0;
  };
  Rows rows_of(int64_t rank) const;
  FixedDims share_extent(int64_t rank) const;
  FixedDims share_offset(int64_t rank) const;  // within the heavy box

  const Part& part_;
  int64_t rank_;
  int64_t size_;
  int64_t heavy_;
  const Push& box_;  // the heavy rank's, in this rank's input
  size_t dim_;       // along which it is shared
};

}  // namespace shardway::shm
