// A reduction of inputs of equal size, whose whole result every rank gets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/calls/contiguous.h"
#include "shm/calls/group_state.h"
#include "shm/kernels/copy.h"
#include "shm/kernels/reduce.h"

namespace shardway::shm {

// The combination of all ranks' inputs, in rank order, written to the output of each rank. The output may be
// the input itself; otherwise the two do not overlap. All ranks give the same number of bytes and the same
// combination.
struct AllReduce {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int64_t bytes = 0;
  Combine how = {};

  bool is_in_place() const { return input == output; }

  // A large result goes past the cache, unless its lines are in the cache already.
  bool streams() const { return !is_in_place() && bytes >= kStreamFromBytes; }
};

// Whether one leg is enough (AllReduceCall). Otherwise each rank combines a share in one leg, and collects
// the others' shares in a second (run_legs). The answer is the same on every rank.
bool is_for_everybody(const GroupState& state, const AllReduce& all_reduce);

// The two legs of an all-reduce in shares. In the first, each rank combines its share and puts it at its
// place in the output. In the second, each rank collects the others' shares.
ContiguousCall share_of(const AllReduce& all_reduce, int64_t rank, int64_t size);
ContiguousCall collection_of(const AllReduce& all_reduce, int64_t rank, int64_t size);

// One collective in which every rank combines everything, or each of two ranks combines every other piece
// (two_rank_all_reduce.h). Inputs travel in the page of the header, beside it, or through the ring for
// everybody, a piece at a time; those in the arena are read where they lie.
class AllReduceCall {
 public:
  AllReduceCall(GroupState& state, uint64_t number, const AllReduce& all_reduce);

  // publish puts up the header. finish does the rest, after the meeting.
  void publish(std::span<const std::byte> note = {});
  void finish();

 private:
  Path path_for() const;
  bool is_shuttled() const;
  void hear_everybody();
  void combine_inside() const;
  void put(int64_t piece);
  void combine(int64_t piece);
  const std::byte* in_slot(int64_t peer);
  void give_back(int64_t piece);
  void leave();
  int64_t bytes_in(int64_t piece) const;

  GroupState& state_;
  Waiting& waiting_;
  uint64_t number_;
  const AllReduce& asked_;
  int64_t piece_bytes_;
  int64_t pieces_;
  Path path_ = Path::none;         // this rank's; inside is so on all ranks
  Few<Path> paths_;                // by rank
  Few<const std::byte*> inputs_;   // by rank; null: it comes through a ring
  Few<const std::byte*> addends_;  // by rank, of the piece at hand
};

}  // namespace shardway::shm
