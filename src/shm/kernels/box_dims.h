// The dims of a box as loops: sorted, and joined where several are one run of memory in every operand.
#pragma once

#include <cstdint>
#include <span>

#include "shm/kernels/small_vector.h"

namespace shardway::shm {

// The strides of one operand, in bytes.
using Strides = std::span<const int64_t>;

// Loops from the outermost to the innermost. Operand 0 is the output: its strides decide the order. Extents
// of 1 vanish; two loops join when the outer stride of every operand is the inner one's whole length:
//   extent {2, 3, 4}, strides {48, 16, 4} and {96, 16, 4}  →  extent {2, 12}, strides {48, 4} and {96, 4}.
class BoxLoops {
 public:
  // Throws std::invalid_argument when the numbers of dims differ or an extent or stride is negative.
  BoxLoops(std::span<const int64_t> extent, std::span<const Strides> operands);

  bool is_empty() const { return is_empty_; }  // some extent is 0: nothing to do
  int64_t dims() const { return static_cast<int64_t>(extent_.size()); }
  int64_t operands() const { return operands_; }
  int64_t extent(int64_t dim) const { return extent_[dim]; }
  int64_t stride(int64_t dim, int64_t operand) const { return strides_[dim * operands_ + operand]; }
  int64_t volume() const;

  // Whether the elements of the innermost loop lie one after the other in every operand.
  bool has_run(int64_t element_bytes) const;

  void drop_innermost();
  void move_inward(int64_t dim, int64_t to);  // the loops between move outward

 private:
  void add(std::span<const Strides> operands, size_t dim, int64_t length);

  int64_t operands_;
  bool is_empty_ = false;
  SmallVector<int64_t, 16> extent_;
  SmallVector<int64_t, 48> strides_;
};

}  // namespace shardway::shm
