// Copies of bytes, at the speed of the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shm/kernels/dims.h"

namespace shardway::shm {

// From this many bytes on a copy goes past the cache (docs/decisions/0007-copy-and-reduce-loops.md).
inline constexpr int64_t kStreamFromBytes = int64_t{12} << 20;
inline constexpr int64_t kStreamRowsFromBytes = 4096;  // shorter rows gain nothing and pay a fence each

// The two ranges do not overlap. What is written is visible to whoever sees a later release store.
void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes);

// The same, past the cache whatever the size.
void stream_bytes(std::byte* to, const std::byte* from, int64_t bytes);

// Copies to two places at once, and reads the source only once. The three ranges do not overlap.
void copy_twice(std::byte* to, std::byte* also_to, const std::byte* from, int64_t bytes);

// Copies a box of elements; strides are in bytes, at least 0, one per dim of `extent`. A piece of something
// larger is copied like the whole if `whole_bytes` gives the bytes of the whole.
//   extent {2, 3}, to_strides {12, 4}, from_strides {4, 8}: a 3×2 matrix of 4 bytes is transposed.
void copy_box(std::byte* to, std::span<const int64_t> to_strides, const std::byte* from,
              std::span<const int64_t> from_strides, std::span<const int64_t> extent, int64_t element_bytes,
              int64_t whole_bytes = 0);

// The same, to memory in which the elements lie row by row.
void pack_box(std::byte* to, const std::byte* from, const FixedDims& from_strides, const FixedDims& extent,
              int64_t element_bytes);

}  // namespace shardway::shm
