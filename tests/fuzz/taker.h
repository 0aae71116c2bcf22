// Takes values off the front of a fuzzer's input; zeros when there is nothing left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace shardway::fuzz {

class Taker {
 public:
  Taker(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool is_empty() const { return size_ == 0; }

  void take_into(void* to, size_t most_bytes) {
    const size_t bytes = std::min(most_bytes, size_);
    if (bytes > 0) std::memcpy(to, data_, bytes);
    data_ += bytes;
    size_ -= bytes;
  }

  template <class T>
  T take() {
    T value{};
    take_into(&value, sizeof(T));
    return value;
  }

  int64_t take_below(int64_t limit) { return take<uint16_t>() % limit; }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace shardway::fuzz
