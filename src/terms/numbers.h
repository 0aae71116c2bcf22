// What a rank tells others as a row of numbers, such as a route or a layout.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace shardway::wire {

// The length of the list, and then its numbers.
inline void append_list(std::vector<int64_t>& to, std::span<const int64_t> list) {
  to.push_back(static_cast<int64_t>(list.size()));
  to.insert(to.end(), list.begin(), list.end());
}

// Takes one number after another. Throws std::invalid_argument if there are too few, or if one is not between
// its limits.
class NumberReader {
 public:
  explicit NumberReader(std::span<const int64_t> numbers) : left_(numbers) {}

  int64_t next(int64_t least = INT64_MIN, int64_t most = INT64_MAX) {
    const int64_t number = take(1).front();
    if (number < least || number > most) throw std::invalid_argument("a number is out of range");
    return number;
  }

  std::span<const int64_t> take(int64_t count) {
    if (count < 0 || count > static_cast<int64_t>(left_.size()))
      throw std::invalid_argument("it ends too early");
    const auto taken = left_.first(static_cast<size_t>(count));
    left_ = left_.subspan(static_cast<size_t>(count));
    return taken;
  }

  // As append_list wrote it.
  std::vector<int64_t> list() {
    const auto taken = take(next());
    return {taken.begin(), taken.end()};
  }

  void check_end() const {
    if (!left_.empty()) throw std::invalid_argument("it goes on behind its end");
  }

 private:
  std::span<const int64_t> left_;
};

}  // namespace shardway::wire
