// What a rank prints when a peer died or did not come in time.
#pragma once

#include <chrono>
#include <cstdint>

#include "shm/board/waiting.h"
#include "shm/memory/errors.h"

namespace shardway::shm {

// Whether the group ended because a process died or a timeout passed. Only then there is something to report.
bool is_loss(const Waiting& waiting);

// Reports the loss, and what every rank of the group is doing, as this rank sees it (record/loss.h). Ranks of
// a part of a group have their numbers in the whole (record/part_names.h).
void report_loss(const Waiting& waiting, uint64_t group, const PeerLost& lost);

struct LongWait {
  const char* op = "call";
  uint64_t number = 0;
  std::chrono::nanoseconds waited{0};
};

// Prints that a call waits, and who holds it up; nothing where SHARDWAY_QUIET is set.
void report_wait(const Waiting& waiting, uint64_t group, const LongWait& wait);

}  // namespace shardway::shm
