// Copies of boxes between places that stay the same, found out once and made again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm/kernels/dims.h"
#include "shm/kernels/kernels.h"

namespace shardway {

class BoxCopies {
 public:
  // A box of elements, small enough that it is copied through the cache; strides are in bytes. Nothing is
  // copied yet.
  void add(std::byte* to, const shm::FixedDims& to_strides, const std::byte* from,
           const shm::FixedDims& from_strides, const shm::FixedDims& extent, int64_t element_bytes);

  // Copies all boxes. No two of them overlap.
  void run() const;

 private:
  // Rows of bytes without gaps: most boxes are one row, or rows at equal distances.
  struct InRows {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    shm::CopiedRows rows = {};
  };

  // Any other box.
  struct Scattered {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    shm::FixedDims to_strides = {};
    shm::FixedDims from_strides = {};
    shm::FixedDims extent = {};
    int64_t element_bytes = 0;
  };

  std::vector<InRows> in_rows_;
  std::vector<Scattered> scattered_;
};

}  // namespace shardway
