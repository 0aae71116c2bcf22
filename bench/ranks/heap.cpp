#include "ranks/heap.h"

#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

namespace shardway::bench {
namespace {

constexpr int64_t kPrefix = 16;  // holds where the block begins, and keeps malloc's alignment

}  // namespace

float* allocate_floats(int64_t elements, int64_t offset) {
  const auto bytes = static_cast<size_t>(kPrefix + offset) + static_cast<size_t>(elements) * sizeof(float);
  auto* block = static_cast<char*>(std::malloc(bytes));
  if (block == nullptr) throw std::bad_alloc();
  char* memory = block + kPrefix + offset;
  std::memcpy(memory - sizeof(block), &block, sizeof(block));
  return reinterpret_cast<float*>(memory);
}

void free_floats(float* memory) {
  if (memory == nullptr) return;
  char* block = nullptr;
  std::memcpy(&block, reinterpret_cast<char*>(memory) - sizeof(block), sizeof(block));
  std::free(block);
}

int64_t offset_of(const Task& task) {
  const std::string prefix = "offset=";
  if (!task.variant.starts_with(prefix)) throw std::invalid_argument("no variant is named " + task.variant);
  return std::stoll(task.variant.substr(prefix.size()));
}

void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
}

void trim_heap() { malloc_trim(0); }

}  // namespace shardway::bench
