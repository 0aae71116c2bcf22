// What a rank holds of the machine, for tests of what groups leave behind.
#pragma once

#include <cstdint>
#include <functional>

#include "shm/memory/arena.h"

namespace shardway::testing {

// Names in /dev/shm that this library may have made: other programs of the machine come and go too.
int64_t names_in_shared_memory();

// For the body of a rank. Runs a round 3 times, then 40 times more: after these the rank may hold no more
// open files, threads, mappings of shared memory or memory of its arena.
void require_nothing_left(shm::Arena& arena, const std::function<void()>& round);

}  // namespace shardway::testing
