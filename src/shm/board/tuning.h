// How a group moves inputs that lie in private memory.
#pragma once

#include <cstdint>

#include "shm/board/thresholds.h"

namespace shardway::shm {

// The same on every rank of a group, from its first call to its last.
struct Tuning {
  int64_t inline_bytes = kInlineBytes;  // inputs up to this large ride with the header
  bool shuttles = true;                 // of two ranks, each writes the other's slots (two_rank_all_reduce.h)
  bool swaps = false;       // of two ranks, each fills what it has emptied (group_state.h, swap.h)
  bool hands_back = false;  // readers write the lines that they have read (lines.h)
};

}  // namespace shardway::shm
