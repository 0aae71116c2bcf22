// One number per dim of a tensor, stored in place: nothing is allocated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "shardway/dims.h"

namespace shardway::shm {

inline constexpr size_t kMaxDims = 16;

class FixedDims {
 public:
  // Leaves the numbers unwritten. With a defaulted constructor, `= {}` would write all of them.
  FixedDims() {}  // NOLINT(modernize-use-equals-default)
  FixedDims(const std::vector<int64_t>& values) : FixedDims(std::span(values)) {}
  FixedDims(const shardway::Dims& values) : FixedDims(std::span(values)) {}
  FixedDims(std::span<const int64_t> values) : count_(values.size()) {
    if (values.size() > kMaxDims) throw std::invalid_argument("a tensor of more than 16 dims");
    for (size_t d = 0; d < count_; ++d) at_[d] = values[d];
  }
  FixedDims(const FixedDims& other) : FixedDims(std::span<const int64_t>(other)) {}
  FixedDims& operator=(const FixedDims& other) {
    count_ = other.count_;
    for (size_t d = 0; d < count_; ++d) at_[d] = other.at_[d];
    return *this;
  }
  static FixedDims zeros(size_t count) {
    FixedDims dims;
    dims.count_ = count;
    dims.at_.fill(0);
    return dims;
  }

  size_t size() const { return count_; }
  int64_t& operator[](size_t d) { return at_[d]; }
  int64_t operator[](size_t d) const { return at_[d]; }
  operator std::span<const int64_t>() const { return {at_.data(), count_}; }
  const int64_t* begin() const { return at_.data(); }
  const int64_t* end() const { return at_.data() + count_; }

  bool operator==(const FixedDims& other) const {
    for (size_t d = 0; d < count_; ++d) {
      if (at_[d] != other.at_[d]) return false;
    }
    return count_ == other.count_;
  }

 private:
  std::array<int64_t, kMaxDims> at_;
  size_t count_ = 0;
};

inline FixedDims one_dim(int64_t value) { return std::span<const int64_t>(&value, 1); }

inline int64_t volume(const FixedDims& extent) {
  int64_t product = 1;
  for (const int64_t length : extent) product *= length;
  return product;
}

// Bytes from the first element to the one at `offset`.
inline int64_t offset_bytes(const FixedDims& offset, const FixedDims& strides) {
  int64_t bytes = 0;
  for (size_t d = 0; d < offset.size(); ++d) bytes += offset[d] * strides[d];
  return bytes;
}

// Bytes from the first element of a box to the end of its last; 0 for an empty one.
inline int64_t span_bytes(const FixedDims& extent, const FixedDims& strides, int64_t element_bytes) {
  int64_t bytes = element_bytes;
  for (size_t d = 0; d < extent.size(); ++d) {
    if (extent[d] == 0) return 0;
    bytes += (extent[d] - 1) * strides[d];
  }
  return bytes;
}

// Strides, in bytes, of elements that lie row by row.
inline FixedDims packed_strides(const FixedDims& extent, int64_t element_bytes) {
  FixedDims strides = FixedDims::zeros(extent.size());
  int64_t bytes = element_bytes;
  for (size_t d = extent.size(); d-- > 0;) {
    strides[d] = bytes;
    bytes *= extent[d];
  }
  return strides;
}

// Whether elements with these strides lie row by row.
inline bool is_packed(const FixedDims& extent, const FixedDims& strides, int64_t element_bytes) {
  int64_t bytes = element_bytes;
  for (size_t d = extent.size(); d-- > 0;) {
    if (extent[d] != 1 && strides[d] != bytes) return false;
    bytes *= extent[d];
  }
  return true;
}

}  // namespace shardway::shm
