// What a rank works with in a group, call after call.
#pragma once

#include <memory>

#include "shm/board/board.h"
#include "shm/board/group_memory.h"
#include "shm/board/tuning.h"
#include "shm/board/waiting.h"
#include "shm/calls/mailbox.h"
#include "shm/memory/arena.h"
#include "shm/memory/kept.h"

namespace shardway::shm {

struct GroupState {
  std::shared_ptr<Arena> arena;
  std::shared_ptr<GroupMemory> memory;
  std::unique_ptr<Waiting> waiting;
  std::unique_ptr<Mailbox> mailbox;
  Tuning tuning = {};
  Payloads payloads = {};
  Kept aside = {};       // for addends that cannot be combined as they come
  uint64_t swapped = 0;  // pieces counted in all calls so far (swap.h)
  uint64_t mark = 0;     // what the call under way is about (subject.h)

  // The board whose section holds a rank's payload. Two ranks that swap use each other's section in every
  // second call. So each writes the lines that it read in the call before, which its own core has.
  const Board& payload_board(int64_t rank, uint64_t number) const {
    return waiting->board(tuning.swaps ? (rank + static_cast<int64_t>(number % 2)) % 2 : rank);
  }
  // `is_for_all`: every peer reads all of it.
  int64_t place_payload(uint64_t number, int64_t bytes, bool is_for_all) {
    const bool is_far = is_for_all && bytes > kNearToAll && waiting->spins();
    return tuning.swaps ? 0 : payloads.place(waiting->own(), number, bytes, is_far);
  }
  // Whether a payload is better written past this rank's cache: nobody writes its lines soon, and readers do
  // not hand them back.
  bool streams_payload(int64_t offset) const {
    return !tuning.swaps && !tuning.hands_back && waiting->spins() && payloads.is_far(waiting->own(), offset);
  }
  // Where a rank's payload lies if it is small, or if the ranks swap.
  const std::byte* small_payload(int64_t rank, uint64_t number) const {
    return payload_board(rank, number).payload(tuning.swaps ? 0 : Payloads::small_place(number));
  }
  std::byte* own_payload(uint64_t number, int64_t offset) const {
    return payload_board(waiting->rank(), number).payload(offset);
  }
};

}  // namespace shardway::shm
