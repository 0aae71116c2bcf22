// Memory of this rank that peers read next.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/copy.h"
#include "shm/dims.h"
#include "shm/thresholds.h"

namespace shardway::shm {

// How it is filled. Past the cache is faster where the ranks' cores share none: a store to a line that a
// reader has held costs the way to its cache and back.
enum class Fill : uint8_t { in_cache, past_cache };

// How a group moves what neither rides with the header nor lies in an arena. Trials when it is made decide.
struct Ways {
  Fill fill = Fill::past_cache;
  bool can_read_processes = false;         // every rank may read every other's private memory
  int64_t address_from_bytes = INT64_MAX;  // inputs this large are read where they lie
};

// Packs a box row by row. What is written is visible to whoever sees a later release store.
inline void fill_box(std::byte* to, const std::byte* from, const Dims& strides, const Dims& extent,
                     int64_t element_bytes, Fill fill) {
  const int64_t bytes = volume(extent) * element_bytes;
  if (fill == Fill::past_cache && bytes >= kPastCacheBytes && is_packed(extent, strides, element_bytes))
    return stream_bytes(to, from, bytes);
  copy_box(to, packed_strides(extent, element_bytes), from, strides, extent, element_bytes);
}

}  // namespace shardway::shm
