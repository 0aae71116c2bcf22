// One number per dim of a tensor.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace [[gnu::visibility("default")]] shardway {

// A short list of numbers. Up to kInline of them lie in the object itself, so that thousands of boxes need no
// memory elsewhere; any number is possible.
class Dims {
 public:
  static constexpr size_t kInline = 4;

  Dims() : size_(0) {}  // not defaulted: that would clear the room for the numbers too
  explicit Dims(size_t size) : Dims(Unset{size}) {
    is_inline() ? std::fill(at_.here, at_.here + kInline, 0) : std::fill(begin(), end(), 0);
  }
  Dims(std::span<const int64_t> values) : Dims(Unset{values.size()}) {
    std::copy(values.begin(), values.end(), begin());
  }
  Dims(std::initializer_list<int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
  Dims(const std::vector<int64_t>& values) : Dims(std::span(values)) {}

  Dims(const Dims& other) : size_(other.size_), at_(other.at_) {
    if (!is_inline()) take_copy(other.at_.elsewhere);
  }
  Dims(Dims&& other) noexcept : size_(std::exchange(other.size_, 0)), at_(other.at_) {}
  Dims& operator=(const Dims& other) {
    if (this != &other) *this = Dims(other);
    return *this;
  }
  Dims& operator=(Dims&& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(at_, other.at_);
    return *this;
  }
  ~Dims() {
    if (!is_inline()) delete[] at_.elsewhere;
  }

  operator std::vector<int64_t>() const { return {begin(), end()}; }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* data() { return is_inline() ? at_.here : at_.elsewhere; }
  const int64_t* data() const { return is_inline() ? at_.here : at_.elsewhere; }
  int64_t* begin() { return data(); }
  int64_t* end() { return data() + size_; }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + size_; }
  int64_t& operator[](size_t dim) { return data()[dim]; }
  int64_t operator[](size_t dim) const { return data()[dim]; }
  int64_t back() const { return data()[size_ - 1]; }

  void push_back(int64_t value) {
    if (size_ < kInline) {
      at_.here[size_++] = value;
      return;
    }
    Dims longer(Unset{size_ + 1});
    *std::copy(begin(), end(), longer.begin()) = value;
    *this = std::move(longer);
  }

  bool operator==(const Dims& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }
  std::strong_ordering operator<=>(const Dims& other) const {
    return std::lexicographical_compare_three_way(begin(), end(), other.begin(), other.end());
  }

 private:
  struct Unset {
    size_t size;
  };
  explicit Dims(Unset unset) : size_(unset.size) {
    if (!is_inline()) at_.elsewhere = new int64_t[size_];
  }

  bool is_inline() const { return size_ <= kInline; }
  void take_copy(const int64_t* values) {
    at_.elsewhere = new int64_t[size_];
    std::copy(values, values + size_, at_.elsewhere);
  }

  size_t size_;
  union {
    int64_t here[kInline];
    int64_t* elsewhere;
  } at_;
};

}  // namespace shardway
