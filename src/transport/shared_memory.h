// Tensors in this process's arena: see shardway/memory.h.
#pragma once

#include "shm/arena.h"

namespace shardway {

// Whether CPU tensors are shared already, without more ado.
bool uses_shared_allocator();

// Of the arena, if this process has made one.
shm::ArenaStats shared_memory_stats();
void trim_shared_memory();

}  // namespace shardway
