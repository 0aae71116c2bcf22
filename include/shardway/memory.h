// The memory of results, and memory that peers on this host read without a copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace [[gnu::visibility("default")]] shardway {

// CPU results of 64 KiB and more come from memory that was touched before: fresh memory costs a page fault
// every few KiB, which for large results takes longer than filling them. What is freed is kept for the
// next result, up to a limit: 1/32 of the machine's memory, or SHARDWAY_CACHE_BYTES from the environment.
struct MemoryStats {
  int64_t in_use_bytes = 0;         // by results and buffers that are alive
  int64_t cached_bytes = 0;         // kept for the next results
  int64_t limit_bytes = 0;          // of cached_bytes
  int64_t reused = 0;               // how often kept memory was enough
  int64_t fresh = 0;                // how often it was not
  int64_t shared_in_use_bytes = 0;  // in memory that peers can read
  int64_t shared_bytes = 0;         // taken from the system for that memory
};

// Returns the figures of this process. Any thread may call.
MemoryStats memory_stats();

// Gives kept memory back to the system. Shared memory goes back all at once, and only if no tensor lies in it
// and no group of this host uses it. Any thread may call.
void empty_cache();

// A CPU tensor in memory that the other ranks of this host can read: collectives copy from it straight into
// their results. Throws c10::OutOfMemoryError with the bytes needed and available. A forked child shares the
// tensors that it inherits, writes included; those that it makes itself are its own. Any thread may call.
at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);

// From now on puts every new CPU tensor of 64 KiB and more into such memory, or into ordinary memory if no
// shared memory is left. Cannot be undone. Any thread may call.
void use_shared_allocator();

}  // namespace shardway
