#include "shm/kernels/box_dims.h"

#include <algorithm>
#include <stdexcept>

namespace shardway::shm {
namespace {

bool has_negative(std::span<const int64_t> values) {
  return std::any_of(values.begin(), values.end(), [](int64_t value) { return value < 0; });
}

void check(std::span<const int64_t> extent, std::span<const Strides> operands) {
  bool fine = !has_negative(extent);
  for (const Strides& strides : operands) {
    fine = fine && strides.size() == extent.size() && !has_negative(strides);
  }
  if (!fine) {
    throw std::invalid_argument("a box needs one stride per dim and operand, and none of them negative");
  }
}

bool is_outside(std::span<const Strides> operands, size_t a, size_t b) {
  for (const Strides& strides : operands) {
    if (strides[a] != strides[b]) return strides[a] > strides[b];
  }
  return false;
}

}  // namespace

BoxLoops::BoxLoops(std::span<const int64_t> extent, std::span<const Strides> operands)
    : operands_(static_cast<int64_t>(operands.size())) {
  check(extent, operands);
  SmallVector<size_t, 16> order;  // outermost first
  for (size_t d = 0; d < extent.size(); ++d) {
    is_empty_ = is_empty_ || extent[d] == 0;
    if (extent[d] == 1) continue;
    order.push_back(d);
    for (size_t i = order.size() - 1; i > 0 && is_outside(operands, order[i], order[i - 1]); --i) {
      std::swap(order[i], order[i - 1]);
    }
  }
  if (is_empty_) return;
  for (const size_t d : order) add(operands, d, extent[d]);
}

void BoxLoops::add(std::span<const Strides> operands, size_t dim, int64_t length) {
  bool joins = dims() > 0;
  for (int64_t o = 0; o < operands_; ++o) {
    joins = joins && stride(dims() - 1, o) == operands[o][dim] * length;
  }
  if (joins) {
    length *= extent(dims() - 1);
    drop_innermost();
  }
  extent_.push_back(length);
  for (const Strides& strides : operands) strides_.push_back(strides[dim]);
}

int64_t BoxLoops::volume() const {
  int64_t product = is_empty_ ? 0 : 1;
  for (const int64_t length : extent_) product *= length;
  return product;
}

bool BoxLoops::has_run(int64_t element_bytes) const {
  if (dims() == 0) return true;
  for (int64_t o = 0; o < operands_; ++o) {
    if (stride(dims() - 1, o) != element_bytes) return false;
  }
  return true;
}

void BoxLoops::drop_innermost() {
  extent_.drop_back(1);
  strides_.drop_back(static_cast<size_t>(operands_));
}

void BoxLoops::move_inward(int64_t dim, int64_t to) {
  std::rotate(extent_.begin() + dim, extent_.begin() + dim + 1, extent_.begin() + to + 1);
  std::rotate(strides_.begin() + dim * operands_, strides_.begin() + (dim + 1) * operands_,
              strides_.begin() + (to + 1) * operands_);
}

}  // namespace shardway::shm
