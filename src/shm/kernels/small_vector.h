// A vector of plain values that allocates only when they are many.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

namespace shardway::shm {

template <class T, size_t inside>
class SmallVector {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  // Leaves the inside unwritten. With a defaulted constructor, `= {}` would write all of it.
  SmallVector() {}  // NOLINT(modernize-use-equals-default)
  SmallVector(const SmallVector& other) : size_(other.size_), outside_(other.outside_) {
    if (size_ <= inside) std::uninitialized_copy(other.begin(), other.end(), inside_begin());
  }
  SmallVector& operator=(const SmallVector& other) {
    if (this != &other) {
      clear();
      for (const T& value : other) push_back(value);
    }
    return *this;
  }

  // Small values come by value. A reference to one that was just made would be read in wider words than it
  // was written, for which the processor has to wait.
  using Given = std::conditional_t<sizeof(T) <= 4 * sizeof(void*), T, const T&>;

  T& push_back(Given value) {
    if (size_ >= inside) return push_back_outside(value);
    return *std::construct_at(inside_begin() + size_++, value);
  }
  void drop_back(size_t count) {
    if (size_ > inside) {
      outside_.resize(size_ - count);
      if (size_ - count <= inside) std::uninitialized_copy(outside_.begin(), outside_.end(), inside_begin());
    }
    size_ -= count;
  }
  void clear() { drop_back(size_); }
  template <class Predicate>
  void erase_if(Predicate predicate) {
    drop_back(static_cast<size_t>(end() - std::remove_if(begin(), end(), predicate)));
  }

  T* data() { return size_ > inside ? outside_.data() : inside_begin(); }
  const T* data() const { return size_ > inside ? outside_.data() : inside_begin(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  // Not inlined, so that push_back is.
  [[gnu::noinline]] T& push_back_outside(Given value) {
    if (size_ == inside) outside_.assign(inside_begin(), inside_begin() + inside);
    outside_.push_back(value);
    ++size_;
    return outside_.back();
  }

  T* inside_begin() { return reinterpret_cast<T*>(inside_); }
  const T* inside_begin() const { return reinterpret_cast<const T*>(inside_); }

  size_t size_ = 0;
  alignas(T) std::byte inside_[inside * sizeof(T)];  // NOLINT(bugprone-sizeof-expression): of a pointer too
  std::vector<T> outside_;
};

// As many as the ranks of a usual group.
inline constexpr size_t kFew = 8;

template <class T>
using Few = SmallVector<T, kFew>;

}  // namespace shardway::shm
