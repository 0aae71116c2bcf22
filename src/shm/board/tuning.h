// How a group moves inputs that lie in private memory.
#pragma once

#include <cstdint>

#include "shm/board/thresholds.h"

namespace shardway::shm {

// The same on every rank of a group, from its first call to its last.
struct Tuning {
  int64_t inline_bytes = kInlineBytes;  // inputs up to this large ride with the header
  bool shuttles = true;                 // each of two ranks writes the other's slots (two_rank_all_reduce.h)
  bool swaps = false;                   // each of two ranks fills what it has emptied (group_state.h, swap.h)
  bool hands_back = false;              // readers write the lines that they have read (lines.h)
};

}  // namespace shardway::shm
