// A vector of plain values that allocates only when they are many.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace shardway::shm {

template <class T, size_t inside>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SmallVector() = default;  // what lies inside is not written before it is used
  SmallVector(const SmallVector&) = delete;
  SmallVector& operator=(const SmallVector&) = delete;

  void push_back(T value) {
    if (size_ >= inside) {
      if (size_ == inside) outside_.assign(inside_.begin(), inside_.end());
      outside_.push_back(value);
    } else {
      inside_[size_] = value;
    }
    ++size_;
  }
  void drop_back(size_t count) {
    if (size_ > inside) {
      outside_.resize(size_ - count);
      if (size_ - count <= inside) std::copy(outside_.begin(), outside_.end(), inside_.begin());
    }
    size_ -= count;
  }

  T* data() { return size_ > inside ? outside_.data() : inside_.data(); }
  const T* data() const { return size_ > inside ? outside_.data() : inside_.data(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  size_t size_ = 0;
  std::array<T, inside> inside_;
  std::vector<T> outside_;
};

}  // namespace shardway::shm
