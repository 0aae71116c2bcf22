#include "dice.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>

namespace shardway::testing {
namespace {

uint64_t chosen_seed() {
  const char* given = std::getenv("SHARDWAY_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::cout << "seed: SHARDWAY_SEED=" << seed << '\n';
  return seed;
}

}  // namespace

Dice::Dice() : Dice(chosen_seed()) {}
Dice::Dice(uint64_t seed) : seed_(seed), engine_(seed) {}

int64_t Dice::between(int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(engine_);
}

double Dice::between(double least, double most) {
  return std::uniform_real_distribution<double>(least, most)(engine_);
}

std::vector<int64_t> Dice::parts_of(int64_t total, int64_t count) {
  std::vector<int64_t> borders{0, total};
  for (int64_t i = 1; i < count; ++i) borders.push_back(between(int64_t{0}, total));
  std::sort(borders.begin(), borders.end());
  std::vector<int64_t> parts;
  for (size_t i = 1; i < borders.size(); ++i) parts.push_back(borders[i] - borders[i - 1]);
  return parts;
}

}  // namespace shardway::testing
