// The dims of a box as loops: sorted, and joined where several are one run of memory in every operand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shardway::shm {

// Loops from the outermost to the innermost. Operand o moves by strides[d * operands + o] bytes per step of
// loop d. The innermost loop of a box whose elements lie one after the other in every operand is its run.
struct BoxLoops {
  int64_t operands = 0;
  std::vector<int64_t> extent = {};
  std::vector<int64_t> strides = {};
  bool is_empty = false;  // some extent is 0: nothing to do

  int64_t dims() const { return static_cast<int64_t>(extent.size()); }
  int64_t stride(int64_t dim, int64_t operand) const { return strides[dim * operands + operand]; }
};

// Operand 0 is the output: its strides decide the order. Extents of 1 vanish; two loops join when the outer
// stride of every operand is the inner one's whole length:
//   extent {2, 3, 4}, strides {48, 16, 4} and {96, 16, 4}  →  extent {2, 12}, strides {48, 4} and {96, 4}.
// Throws std::invalid_argument when the numbers of dims differ or an extent or stride is negative.
BoxLoops box_loops(std::span<const int64_t> extent, std::span<const std::span<const int64_t>> strides);

}  // namespace shardway::shm
