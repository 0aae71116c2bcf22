// Cache lines that a reader hands back to the rank that writes them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardway::shm {

// A store to a line that a peer's core has read must first ask that core for it, and stores that ask are few
// at a time. Where the reader has written the line since, some processors move it back several times faster.
// So a reader that is done with what nobody else reads writes a byte of every line that lies in it whole.
inline void hand_back(const std::byte* data, int64_t bytes) {
  constexpr uintptr_t kLine = 64;
  const auto begin = (reinterpret_cast<uintptr_t>(data) + kLine - 1) / kLine * kLine;
  const auto end = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes);
  for (uintptr_t line = begin; line + kLine <= end; line += kLine)
    __atomic_store_n(reinterpret_cast<char*>(line), 0, __ATOMIC_RELAXED);
}

}  // namespace shardway::shm
