// Memory of long lists that is kept for the next such list.
#pragma once

#include <cstddef>
#include <limits>
#include <new>

namespace [[gnu::visibility("default")]] shardway {

// Memory for `bytes`, reused if some was given back. Fresh memory costs a page fault every 4 KiB, which takes
// longer than filling it. Up to 16 MiB are kept. Any thread may call.
void* take_kept_memory(size_t bytes);
void give_kept_memory(void* memory, size_t bytes) noexcept;

// The allocator of such a list.
template <class Item>
struct KeptMemory {
  using value_type = Item;

  KeptMemory() = default;
  template <class Other>
  KeptMemory(const KeptMemory<Other>&) {}

  Item* allocate(size_t count) {
    if (count > std::numeric_limits<size_t>::max() / sizeof(Item)) throw std::bad_array_new_length();
    return static_cast<Item*>(take_kept_memory(count * sizeof(Item)));
  }
  void deallocate(Item* items, size_t count) noexcept { give_kept_memory(items, count * sizeof(Item)); }

  bool operator==(const KeptMemory&) const { return true; }
};

}  // namespace shardway
