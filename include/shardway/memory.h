// The memory of results.
#pragma once

#include <cstdint>

namespace shardway {

// CPU results of 1 MiB and more come from memory that was touched before: fresh memory costs a page fault
// every few KiB, which for large results takes longer than filling them. What is freed is kept for the
// next result, up to a limit: 1/32 of the machine's memory, or SHARDWAY_CACHE_BYTES from the environment.
struct MemoryStats {
  int64_t in_use_bytes = 0;  // by results and buffers that are alive
  int64_t cached_bytes = 0;  // kept for the next
  int64_t limit_bytes = 0;   // on what is kept
  int64_t reused = 0;        // how often kept memory was enough
  int64_t fresh = 0;         // how often it was not
};

// Of this process. Any thread may call.
MemoryStats memory_stats();

// Gives what is kept back to the system. Any thread may call.
void empty_cache();

}  // namespace shardway
