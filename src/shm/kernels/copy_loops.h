// Copies as templates over the instruction set. `Isa` has kBytes, the size of a vector; stream, a store past
// the cache; and fence, which makes such stores visible.
#pragma once

#include "shm/kernels/kernels.h"
#include "shm/kernels/vectors.h"

namespace shardway::shm {

// Copies fewer bytes than a vector of `bytes`: as two halves that overlap, or as smaller ones.
template <int bytes>
SHARDWAY_INLINE void copy_below(std::byte* to, const std::byte* from, int64_t count) {
  if constexpr (bytes == 1) {
    return;
  } else {
    constexpr int kHalf = bytes / 2;
    if (count < kHalf) return copy_below<kHalf>(to, from, count);
    using Half = std::byte[kHalf];
    Half first;
    Half last;
    __builtin_memcpy(first, from, kHalf);
    __builtin_memcpy(last, from + count - kHalf, kHalf);
    __builtin_memcpy(to, first, kHalf);
    __builtin_memcpy(to + count - kHalf, last, kHalf);
  }
}

template <class V, int vectors>
SHARDWAY_INLINE void copy_vectors(std::byte* to, const std::byte* from) {
  V v[vectors];
#pragma GCC unroll 4
  for (int i = 0; i < vectors; ++i) v[i] = load<V>(from + i * sizeof(V));
#pragma GCC unroll 4
  for (int i = 0; i < vectors; ++i) store(to + i * sizeof(V), v[i]);
}

template <int count>
struct Count {
  static constexpr int kCount = count;
};

// Copies up to eight vectors without a loop, from both ends towards the middle.
template <class V>
SHARDWAY_INLINE void copy_few(std::byte* to, const std::byte* from, int64_t bytes) {
  constexpr int64_t kOne = sizeof(V);
  if (bytes < kOne) return copy_below<kOne>(to, from, bytes);
  const auto both_ends = [&](auto vectors) {
    constexpr int kVectors = decltype(vectors)::kCount;
    copy_vectors<V, kVectors>(to, from);
    copy_vectors<V, kVectors>(to + bytes - kVectors * kOne, from + bytes - kVectors * kOne);
  };
  if (bytes <= 2 * kOne) return both_ends(Count<1>{});
  if (bytes <= 4 * kOne) return both_ends(Count<2>{});
  both_ends(Count<4>{});
}

// From this many bytes on it pays to align stores, so that none crosses a line.
constexpr int64_t kAlignFromBytes = 2048;
constexpr int64_t kLineBytes = 64;

SHARDWAY_INLINE int64_t bytes_to_next_line(const std::byte* at) {
  return static_cast<int64_t>(-reinterpret_cast<uintptr_t>(at) & (kLineBytes - 1));
}

template <class Isa>
SHARDWAY_INLINE void copy_inline(std::byte* to, const std::byte* from, int64_t bytes) {
  using V = Vector<uint64_t, Isa::kBytes>;
  constexpr int64_t kStep = 4 * sizeof(V);
  if (bytes <= 2 * kStep) return copy_few<V>(to, from, bytes);
  int64_t at = 0;
  if (bytes >= kAlignFromBytes) {
    at = bytes_to_next_line(to);
    copy_vectors<V, kLineBytes / sizeof(V)>(to, from);
  }
  for (; at + kStep <= bytes; at += kStep) copy_vectors<V, 4>(to + at, from + at);
  copy_vectors<V, 4>(to + bytes - kStep, from + bytes - kStep);
}

template <class Isa>
void copy_loop(std::byte* to, const std::byte* from, int64_t bytes) {
  copy_inline<Isa>(to, from, bytes);
}

template <class Isa>
void copy_twice_loop(std::byte* to, std::byte* also_to, const std::byte* from, int64_t bytes) {
  using V = Vector<uint64_t, Isa::kBytes>;
  constexpr int64_t kStep = 4 * sizeof(V);
  int64_t at = 0;
  for (; at + kStep <= bytes; at += kStep) {
    V v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) v[i] = load<V>(from + at + i * sizeof(V));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) store(to + at + i * sizeof(V), v[i]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) store(also_to + at + i * sizeof(V), v[i]);
  }
  copy_inline<Isa>(to + at, from + at, bytes - at);
  copy_inline<Isa>(also_to + at, from + at, bytes - at);
}

template <class Isa>
void stream_loop(std::byte* to, const std::byte* from, int64_t bytes) {
  using V = Vector<uint64_t, Isa::kBytes>;
  constexpr int64_t kStep = 4 * sizeof(V);
  const int64_t head = bytes_to_next_line(to);
  if (bytes < head + kStep) return copy_inline<Isa>(to, from, bytes);
  copy_inline<Isa>(to, from, head);
  int64_t at = head;
  for (; at + kStep <= bytes; at += kStep) {
    V v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) v[i] = load<V>(from + at + i * sizeof(V));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) Isa::stream(to + at + i * sizeof(V), v[i]);
  }
  Isa::fence();
  copy_inline<Isa>(to + at, from + at, bytes - at);
}

template <int run>
SHARDWAY_INLINE void copy_rows_of(std::byte* to, const std::byte* from, const CopiedRows& rows) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    std::byte element[run];
    __builtin_memcpy(element, from + r * rows.from_stride, run);
    __builtin_memcpy(to + r * rows.to_stride, element, run);
  }
}

template <class Isa>
void copy_rows_loop(std::byte* to, const std::byte* from, const CopiedRows& rows) {
  switch (rows.run) {
    case 1:
      return copy_rows_of<1>(to, from, rows);
    case 2:
      return copy_rows_of<2>(to, from, rows);
    case 4:
      return copy_rows_of<4>(to, from, rows);
    case 8:
      return copy_rows_of<8>(to, from, rows);
    case 16:
      return copy_rows_of<16>(to, from, rows);
    case 32:
      return copy_rows_of<32>(to, from, rows);
    case 64:
      return copy_rows_of<64>(to, from, rows);
    default:
      for (int64_t r = 0; r < rows.rows; ++r) {
        copy_inline<Isa>(to + r * rows.to_stride, from + r * rows.from_stride, rows.run);
      }
  }
}

// Squares small enough that the lines of both sides stay in the first-level cache.
constexpr int64_t kTileEdge = 32;

template <class Isa>
void copy_tile_loop(std::byte* to, const std::byte* from, const Tile& tile) {
  for (int64_t s = 0; s < tile.slow; s += kTileEdge) {
    const int64_t slow = tile.slow - s < kTileEdge ? tile.slow - s : kTileEdge;
    for (int64_t f = 0; f < tile.fast; f += kTileEdge) {
      const int64_t fast = tile.fast - f < kTileEdge ? tile.fast - f : kTileEdge;
      for (int64_t i = s; i < s + slow; ++i) {
        copy_rows_loop<Isa>(to + i * tile.slow_to_stride + f * tile.fast_to_stride,
                            from + i * tile.slow_from_stride + f * tile.fast_from_stride,
                            {fast, tile.element_bytes, tile.fast_to_stride, tile.fast_from_stride});
      }
    }
  }
}

}  // namespace shardway::shm
