// The slots of two ranks that write each other's sections of the group's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/board/thresholds.h"
#include "shm/board/waiting.h"

namespace shardway::shm {

// A rank fills a slot that it has emptied with its own piece whose number is kSwapTurns higher: its core has
// the lines already, and nothing needs to be handed back. Piece numbers continue from call to call. In a call
// one rank may send more pieces than the other; both then count the larger number.
//
// Example, kSwapTurns 2, where A and B each have two slots in their sections:
//   piece     0   1   2   3   4
//   of A in   A0  A1  B0  B1  A0
//   of B in   B0  B1  A0  A1  B0
class Swap {
 public:
  Swap(const Waiting& waiting, uint64_t first) : waiting_(&waiting), first_(first) {}

  // Where a piece of this call lies.
  std::byte* slot(int64_t writer, int64_t piece) const {
    const uint64_t number = first_ + static_cast<uint64_t>(piece);
    const auto owner = static_cast<int64_t>((static_cast<uint64_t>(writer) + number / kSwapTurns) % 2);
    return waiting_->board(owner).slot(1 - owner, number % kSwapTurns);
  }

 private:
  const Waiting* waiting_;
  uint64_t first_;
};

}  // namespace shardway::shm
