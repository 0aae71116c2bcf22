// Which values the bytes between ranks may hold, for readers that do not know torch.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace shardway::wire {

inline constexpr int64_t kMaxDims = 16;
inline constexpr int kGrads = 3;  // shardway::Grad

// The names of the reductions, indexed by their numbers between ranks: first those of shardway::Op, then
// those that only torch has.
inline constexpr std::array kOpNames = {"sum",  "avg", "min",  "max",       "product",
                                        "band", "bor", "bxor", "premul_sum"};

// The numbers that torch gives to dtypes and devices.
struct Kinds {
  int64_t (*bytes_of_dtype)(int64_t dtype) = nullptr;  // 0 if there is no such dtype
  int64_t devices = 0;
  std::string (*dtype_name)(int64_t dtype) = nullptr;
  std::string (*device_name)(int64_t device) = nullptr;
};

// Returns the bytes of a dense tensor, or -1 if torch allows no tensor of this shape. Extents are multiplied
// in order, as torch does: (2^62, 0) is valid, (2^62, 4, 0) is not.
inline int64_t dense_bytes(const int64_t* shape, int64_t ndim, int64_t element_bytes) {
  int64_t count = 1;
  for (int64_t d = 0; d < ndim; ++d) {
    if (shape[d] < 0 || __builtin_mul_overflow(count, shape[d], &count)) return -1;
  }
  int64_t bytes = 0;
  return __builtin_mul_overflow(count, element_bytes, &bytes) ? -1 : bytes;
}

// Returns the sum of one size per rank, or -1 if a size is negative or the sum overflows.
inline int64_t total_of(const int64_t* sizes, int64_t ranks) {
  int64_t total = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (sizes[rank] < 0 || __builtin_add_overflow(total, sizes[rank], &total)) return -1;
  }
  return total;
}

}  // namespace shardway::wire
