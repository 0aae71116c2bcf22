#include "transport/memory/shared_memory.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "shardway/memory.h"
#include "shm/board/retired.h"
#include "shm/memory/errors.h"

namespace shardway {
namespace {

constexpr size_t kLeastSharedBytes = 64 << 10;

// Finds the block by its address, as allocators of raw memory require.
void free_shared(void* data) {
  if (data == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(data);
  shm::Arena::free_anywhere(static_cast<std::byte*>(data));
}

void* allocate_shared(size_t bytes) {
  void* data = shm::Arena::of_process()->allocate(static_cast<int64_t>(bytes));
  c10::profiledCPUMemoryReporter().New(data, bytes);
  return data;
}

class ArenaAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &free_shared, c10::Device(c10::kCPU)};
    try {
      void* data = allocate_shared(bytes);
      return {data, data, &free_shared, c10::Device(c10::kCPU)};
    } catch (const shm::ArenaFull& error) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "empty: ", error.what());
    }
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_shared; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

// Takes large blocks from the arena and small ones from the allocator that was there before.
class SharedCpuAllocator : public c10::Allocator {
 public:
  explicit SharedCpuAllocator(c10::Allocator* plain) : plain_(plain) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kLeastSharedBytes) return plain_->allocate(bytes);
    try {
      void* data = allocate_shared(bytes);
      return {data, data, &free_any, c10::Device(c10::kCPU)};
    } catch (const shm::ArenaFull&) {
      return plain_->allocate(bytes);
    }
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_any; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    plain_->copy_data(to, from, bytes);
  }

  static SharedCpuAllocator*& installed() {
    static SharedCpuAllocator* allocator = nullptr;
    return allocator;
  }

 private:
  static void free_any(void* data) {
    if (shm::Arena::is_in_any(static_cast<std::byte*>(data))) {
      free_shared(data);
    } else {
      installed()->plain_->raw_deallocate(data);
    }
  }

  c10::Allocator* plain_;
};

// Relaxed: what passes a tensor of the allocator from its maker to another thread also orders this flag.
std::atomic<bool> is_installed{false};

std::atomic<void (*)()> called_before_trim = nullptr;

}  // namespace

bool uses_shared_allocator() { return is_installed.load(std::memory_order_relaxed); }

shm::ArenaStats shared_memory_stats() { return shm::Arena::stats_of_process(); }

void before_trim(void (*function)()) { called_before_trim.store(function); }

void trim_shared_memory() {
  if (auto* function = called_before_trim.load()) function();
  shm::sweep_retired();
  shm::Arena::renew_of_process();
}

at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) {
  static auto* allocator = new ArenaAllocator;  // never destroyed: storages keep a pointer to it
  return at::detail::empty_generic(sizes, allocator, c10::DispatchKeySet(c10::DispatchKey::CPU), dtype,
                                   std::nullopt);
}

void use_shared_allocator() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (is_installed.load(std::memory_order_relaxed)) return;
  shm::Arena::of_process();  // if no arena can be made, throws here and not at some later tensor
  SharedCpuAllocator::installed() = new SharedCpuAllocator(c10::GetCPUAllocator());
  c10::SetCPUAllocator(SharedCpuAllocator::installed(), /*priority=*/255);
  is_installed.store(true, std::memory_order_relaxed);
}

}  // namespace shardway
