// The loops that are compiled once per instruction set, and the choice among them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/kernels/isa.h"
#include "shm/kernels/reduce.h"

namespace shardway::shm {

// Rows of `run` bytes, `rows` of them, each side with its own stride in bytes.
struct CopiedRows {
  int64_t rows = 1;
  int64_t run = 0;
  int64_t to_stride = 0;
  int64_t from_stride = 0;
};

// A matrix of elements that is transposed on the way: neighbours along `fast` are near in the output, those
// along `slow` are near in the input.
struct Tile {
  int64_t element_bytes = 1;
  int64_t fast = 1;
  int64_t fast_to_stride = 0;
  int64_t fast_from_stride = 0;
  int64_t slow = 1;
  int64_t slow_to_stride = 0;
  int64_t slow_from_stride = 0;
};

using ReduceLoop = void (*)(std::byte* to, const std::byte* const* addends, int64_t addend_count,
                            int64_t count, const Combine& how);

struct Kernels {
  void (*copy)(std::byte* to, const std::byte* from, int64_t bytes);
  void (*stream)(std::byte* to, const std::byte* from, int64_t bytes);  // past the cache, with its fence
  void (*copy_twice)(std::byte* to, std::byte* also_to, const std::byte* from, int64_t bytes);
  void (*copy_rows)(std::byte* to, const std::byte* from, const CopiedRows& rows);
  void (*copy_tile)(std::byte* to, const std::byte* from, const Tile& tile);
  ReduceLoop (*reduce_loop)(Element element, Reduction op, bool scaled);  // null where it is not defined
};

extern const Kernels kPortableKernels;
#ifdef __x86_64__
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#elif defined(__aarch64__)
extern const Kernels kNeonKernels;
#endif

const Kernels& current_kernels();

}  // namespace shardway::shm
