// Random numbers whose seed is printed, so that a failure can be had again.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace shardway::testing {

// Seeded from SHARDWAY_SEED where that is set, else anew in every run.
class Dice {
 public:
  Dice();
  explicit Dice(uint64_t seed);

  uint64_t seed() const { return seed_; }

  int64_t between(int64_t least, int64_t most);
  double between(double least, double most);
  bool one_in(int64_t times) { return between(int64_t{1}, times) == 1; }

  template <class Item>
  const Item& any_of(const std::vector<Item>& items) {
    return items[static_cast<size_t>(between(int64_t{0}, static_cast<int64_t>(items.size()) - 1))];
  }

  template <class Item>
  void shuffle(std::vector<Item>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<size_t>(between(int64_t{0}, static_cast<int64_t>(i) - 1))]);
    }
  }

  // This many numbers of at least zero that add up to `total`, zeros among them.
  std::vector<int64_t> parts_of(int64_t total, int64_t count);

 private:
  uint64_t seed_;
  std::mt19937_64 engine_;
};

}  // namespace shardway::testing
