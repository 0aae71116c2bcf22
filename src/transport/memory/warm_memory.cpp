#include "transport/memory/warm_memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "shardway/memory.h"
#include "shm/memory/fork_mutex.h"
#include "transport/memory/shared_memory.h"
#include "transport/memory/tensors.h"

namespace shardway {
namespace {

constexpr size_t kLeastBytes = 64 << 10;
constexpr size_t kHugePage = 2 << 20;

// Sizes that differ a little from step to step share a block: there are eight size classes per power of two.
size_t class_of(size_t bytes) {
  const size_t granule = std::max(std::bit_floor(bytes) / 8, size_t{4096});
  return (bytes + granule - 1) / granule * granule;
}

size_t limit_from_environment() {
  if (const char* given = std::getenv("SHARDWAY_CACHE_BYTES")) {
    char* end = nullptr;
    const unsigned long long bytes = std::strtoull(given, &end, 10);
    TORCH_CHECK_VALUE(end != given && *end == '\0', "SHARDWAY_CACHE_BYTES='", given,
                      "' is not a number of bytes");
    return bytes;
  }
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE)) / 32;
}

struct WarmBlock {
  void* data = nullptr;
  size_t bytes = 0;
};

class BlockCache {
 public:
  static BlockCache& instance() {
    static auto* cache = new BlockCache;  // never destroyed: tensors may outlive the end of main
    return *cache;
  }

  WarmBlock take(size_t bytes) {
    const size_t wanted = class_of(bytes);
    const std::lock_guard lock(mutex_);
    (void)limit();  // throws here if it is invalid, and not when the block is freed
    in_use_ += wanted;
    const auto alike = by_size_.find(wanted);
    if (alike == by_size_.end() || alike->second.empty()) {
      ++fresh_;
      return {.data = from_system(wanted), .bytes = wanted};
    }
    const auto warmest = alike->second.back();  // the last one freed
    alike->second.pop_back();
    const WarmBlock found = *warmest;
    kept_.erase(warmest);
    kept_bytes_ -= wanted;
    ++reused_;
    return found;
  }

  void give_back(WarmBlock block) {
    const std::lock_guard lock(mutex_);
    in_use_ -= block.bytes;
    by_size_[block.bytes].push_back(kept_.insert(kept_.end(), block));
    kept_bytes_ += block.bytes;
    shrink_to(limit());
  }

  void empty() {
    const std::lock_guard lock(mutex_);
    shrink_to(0);
  }

  MemoryStats stats() {
    const std::lock_guard lock(mutex_);
    return {.in_use_bytes = static_cast<int64_t>(in_use_),
            .cached_bytes = static_cast<int64_t>(kept_bytes_),
            .limit_bytes = static_cast<int64_t>(limit()),
            .reused = reused_,
            .fresh = fresh_};
  }

 private:
  // That of the environment at the first call.
  size_t limit() {
    if (!limit_) limit_ = limit_from_environment();
    return *limit_;
  }

  void* from_system(size_t bytes) {
    void* data = try_system(bytes);
    if (data == nullptr) {
      shrink_to(0);
      data = try_system(bytes);
    }
    if (data == nullptr) in_use_ -= bytes;
    TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr, "no memory for a result of ", bytes, " bytes");
    return data;
  }

  static void* try_system(size_t bytes) {
    void* data = nullptr;
    const bool is_large = bytes >= kHugePage;
    if (posix_memalign(&data, is_large ? kHugePage : 4096, bytes) != 0) return nullptr;
    if (is_large) madvise(data, bytes, MADV_HUGEPAGE);  // a hint: if it fails, pages are small
    return data;
  }

  void shrink_to(size_t limit) {
    for (; kept_bytes_ > limit; kept_.pop_front()) {
      const WarmBlock& oldest = kept_.front();
      by_size_[oldest.bytes].pop_front();
      kept_bytes_ -= oldest.bytes;
      std::free(oldest.data);
    }
  }

  shm::ForkMutex mutex_;
  std::optional<size_t> limit_;
  std::list<WarmBlock> kept_;                                                       // oldest first
  std::unordered_map<size_t, std::deque<std::list<WarmBlock>::iterator>> by_size_;  // by size, oldest first
  size_t kept_bytes_ = 0;
  size_t in_use_ = 0;
  int64_t reused_ = 0;
  int64_t fresh_ = 0;
};

[[maybe_unused]] const BlockCache& cache_at_load = BlockCache::instance();

class WarmAllocator : public c10::Allocator {
 public:
  static WarmAllocator& instance() {
    static auto* allocator = new WarmAllocator;  // never destroyed: storages keep a pointer to it
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kLeastBytes) return c10::GetCPUAllocator()->allocate(bytes);
    auto* block = new WarmBlock(BlockCache::instance().take(bytes));
    return {block->data, block, &give_back, c10::Device(c10::kCPU)};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

 private:
  static void give_back(void* context) {
    auto* block = static_cast<WarmBlock*>(context);
    BlockCache::instance().give_back(*block);
    delete block;
  }
};

}  // namespace

at::Tensor warm_empty(at::IntArrayRef sizes, const at::TensorOptions& options) {
  if (!options.device().is_cpu()) return empty_tensor(sizes, options);
  const auto bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(options.dtype().itemsize());
  const auto dtype = c10::typeMetaToScalarType(options.dtype());
  // The shared allocator's arena itself keeps memory that was touched.
  if (bytes < static_cast<int64_t>(kLeastBytes) || uses_shared_allocator())
    return at::detail::empty_cpu(sizes, dtype);
  return at::detail::empty_generic(sizes, &WarmAllocator::instance(),
                                   c10::DispatchKeySet(c10::DispatchKey::CPU), dtype, std::nullopt);
}

MemoryStats memory_stats() {
  MemoryStats stats = BlockCache::instance().stats();
  const shm::ArenaStats shared = shared_memory_stats();
  stats.shared_in_use_bytes = shared.in_use_bytes;
  stats.shared_bytes = shared.committed_bytes;
  return stats;
}

void empty_cache() {
  BlockCache::instance().empty();
  trim_shared_memory();
}

}  // namespace shardway
