// The memory of results, and memory that peers of this host read with no copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace [[gnu::visibility("default")]] shardway {

// CPU results of 64 KiB and more come from memory that was touched before: fresh memory costs a page fault
// every few KiB, which for large results takes longer than filling them. What is freed is kept for the
// next result, up to a limit: 1/32 of the machine's memory, or SHARDWAY_CACHE_BYTES from the environment.
struct MemoryStats {
  int64_t in_use_bytes = 0;         // by results and buffers that are alive
  int64_t cached_bytes = 0;         // kept for the next
  int64_t limit_bytes = 0;          // on what is kept
  int64_t reused = 0;               // how often kept memory was enough
  int64_t fresh = 0;                // how often it was not
  int64_t shared_in_use_bytes = 0;  // of memory that peers can read
  int64_t shared_bytes = 0;         // taken from the system for it
};

// Of this process. Any thread may call.
MemoryStats memory_stats();

// Gives what is kept back to the system; shared memory all at once, where no tensor lies in it and no group
// of this host has it. Any thread may call.
void empty_cache();

// A CPU tensor in memory that the other ranks of this host can read: collectives copy from it straight into
// their results. Throws c10::OutOfMemoryError with the bytes needed and available. A child of fork shares
// what it inherits, writes included; what it makes itself is its own. Any thread may call.
at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat);

// Makes every CPU tensor of 64 KiB and more, from now on, such a tensor. Where there is no more shared memory
// it is a plain one. Cannot be undone. Any thread may call.
void use_shared_allocator();

}  // namespace shardway
