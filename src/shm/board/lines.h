// Cache lines that a reader hands back to the rank that writes them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardway::shm {

// A store to a line that a peer's core has read must first ask that core for the line, and only a few such
// stores can be under way at a time. If the reader has written the line since, some processors move it back
// several times faster. So a reader that has finished with memory that nobody else reads writes a byte of
// every line that lies wholly inside it. Relaxed: the store that says that the lines are read (a slot's
// count, the next header's number) comes later, with release.
inline void hand_back(const std::byte* data, int64_t bytes) {
  constexpr int64_t kLine = 64;
  const auto before = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(data) & (kLine - 1));
  auto* lines = reinterpret_cast<char*>(const_cast<std::byte*>(data));
  for (int64_t line = before; line + kLine <= bytes; line += kLine)
    __atomic_store_n(lines + line, 0, __ATOMIC_RELAXED);
}

}  // namespace shardway::shm
