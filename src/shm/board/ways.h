// How a group moves inputs that lie in private memory.
#pragma once

#include <cstdint>

#include "shm/board/thresholds.h"

namespace shardway::shm {

// Trials when the group is made decide.
struct Ways {
  int64_t inline_bytes = kInlineBytes;     // inputs up to this large ride with the header
  bool can_read_processes = false;         // every rank may read every other's private memory
  int64_t address_from_bytes = INT64_MAX;  // boxes this large are read where they lie
  bool shuttles = true;                    // of two ranks, each writes the other's slots (shuttle.h)
  bool swaps = false;                      // of two ranks, each fills what it has emptied (desk.h, swap.h)
  bool hands_back = false;                 // readers write the lines that they have read (lines.h)
};

}  // namespace shardway::shm
