// An all-reduce of two ranks whose slots travel there and back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/calls/all_reduce.h"
#include "shm/calls/group_state.h"

namespace shardway::shm {

// Each rank combines one of every two pieces. The other rank's addend comes in a slot, and the result goes
// back in it. So half as many lines go from core to core as if each rank combined everything, and none has to
// be handed back. Both ranks may write each other's slots, and have met.
//
// Example, four pieces, seen by rank 0:
//   puts pieces 1 and 3; combines 0 and 2, in rank 1's slots; collects 1 and 3, from its own.
class TwoRankAllReduce {
 public:
  TwoRankAllReduce(GroupState& state, const AllReduce& all_reduce);

  void run();

 private:
  int64_t piece_of(int64_t turn, int64_t rank) const { return 2 * turn + rank; }
  void put(int64_t turn);
  void combine(int64_t turn);
  void collect(int64_t turn);
  void write(std::byte* to, const std::byte* from, int64_t bytes) const;
  int64_t bytes_in(int64_t piece) const;

  Waiting& waiting_;
  const AllReduce& asked_;
  int64_t rank_;
  int64_t peer_;
  int64_t piece_bytes_;
  int64_t pieces_;
  uint64_t first_;  // the number of the slot of the first piece that is put
};

}  // namespace shardway::shm
