// Tensors in this process's arena: see shardway/memory.h.
#pragma once

#include "shm/memory/arena.h"

namespace shardway {

// Whether use_shared_allocator has made all large CPU tensors shared.
bool uses_shared_allocator();

// Statistics of this process's arena; zeros if it has not made one.
shm::ArenaStats shared_memory_stats();

// Gives unused shared memory back to the system. First calls the function that before_trim has set.
void trim_shared_memory();
void before_trim(void (*function)());

}  // namespace shardway
