#include "shardway/kept_memory.h"

#include <array>
#include <bit>
#include <mutex>
#include <vector>

namespace shardway {
namespace {

constexpr size_t kLeastBytes = size_t{32} << 10;  // the heap itself keeps smaller blocks
constexpr size_t kMostKeptBytes = size_t{16} << 20;

// Blocks by size. Sizes are powers of two, so the bytes that are given back tell which list a block belongs
// to.
class KeptBlocks {
 public:
  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    std::vector<void*>& blocks = blocks_of(bytes);
    if (blocks.empty()) return nullptr;
    void* block = blocks.back();
    blocks.pop_back();
    kept_bytes_ -= bytes;
    return block;
  }

  bool keep(void* block, size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    if (kept_bytes_ + bytes > kMostKeptBytes) return false;
    try {
      blocks_of(bytes).push_back(block);
    } catch (const std::bad_alloc&) {
      return false;
    }
    kept_bytes_ += bytes;
    return true;
  }

 private:
  std::vector<void*>& blocks_of(size_t bytes) {
    return blocks_[static_cast<size_t>(std::countr_zero(bytes))];
  }

  std::mutex mutex_;
  size_t kept_bytes_ = 0;
  std::array<std::vector<void*>, 64> blocks_;
};

// Never destroyed: a list may give its memory back until the process ends.
KeptBlocks& kept_blocks() {
  static auto& blocks = *new KeptBlocks;
  return blocks;
}

}  // namespace

void* take_kept_memory(size_t bytes) {
  if (bytes < kLeastBytes || bytes > kMostKeptBytes) return ::operator new(bytes);
  const size_t size = std::bit_ceil(bytes);
  void* block = kept_blocks().take(size);
  return block != nullptr ? block : ::operator new(size);
}

void give_kept_memory(void* memory, size_t bytes) noexcept {
  if (bytes < kLeastBytes || bytes > kMostKeptBytes || !kept_blocks().keep(memory, std::bit_ceil(bytes)))
    ::operator delete(memory);
}

}  // namespace shardway
