// Tensors in this process's arena: see shardway/memory.h.
#pragma once

#include "shm/memory/arena.h"

namespace shardway {

// Whether CPU tensors are shared already, without more ado.
bool uses_shared_allocator();

// Of the arena, if this process has made one.
shm::ArenaStats shared_memory_stats();

// Gives back what nothing uses; first calls what was to be called then.
void trim_shared_memory();
void before_trim(void (*function)());

}  // namespace shardway
