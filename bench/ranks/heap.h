// Buffers from malloc, as a program without a cache of its own has them.
#pragma once

#include <cstdint>

#include "ranks/task.h"

namespace shardway::bench {

// Starts `offset` bytes further in than malloc would put it.
float* allocate_floats(int64_t elements, int64_t offset = 0);
void free_floats(float* memory);  // null is nothing

// Of a variant "offset=64".
int64_t offset_of(const Task& task);

// From now on malloc gives nothing back to the system.
void keep_freed_memory();

// Gives back what malloc can.
void trim_heap();

}  // namespace shardway::bench
