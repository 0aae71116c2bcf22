#include "shm/box_dims.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace shardway::shm {
namespace {

void check(std::span<const int64_t> extent, std::span<const std::span<const int64_t>> strides) {
  const auto is_negative = [](int64_t value) { return value < 0; };
  bool fine = std::none_of(extent.begin(), extent.end(), is_negative);
  for (const auto& operand : strides) {
    fine =
        fine && operand.size() == extent.size() && std::none_of(operand.begin(), operand.end(), is_negative);
  }
  if (!fine) {
    throw std::invalid_argument("a box needs one stride per dim and operand, and none of them negative");
  }
}

std::vector<size_t> outermost_first(std::span<const int64_t> extent,
                                    std::span<const std::span<const int64_t>> strides) {
  std::vector<size_t> order;
  order.reserve(extent.size());
  for (size_t d = 0; d < extent.size(); ++d) {
    if (extent[d] != 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    for (const auto& operand : strides) {
      if (operand[a] != operand[b]) return operand[a] > operand[b];
    }
    return false;
  });
  return order;
}

}  // namespace

BoxLoops box_loops(std::span<const int64_t> extent, std::span<const std::span<const int64_t>> strides) {
  check(extent, strides);
  BoxLoops loops{.operands = static_cast<int64_t>(strides.size())};
  loops.is_empty = std::find(extent.begin(), extent.end(), 0) != extent.end();
  if (loops.is_empty) return loops;
  for (const size_t d : outermost_first(extent, strides)) {
    const bool joins =
        !loops.extent.empty() && std::all_of(strides.begin(), strides.end(), [&](const auto& s) {
          const int64_t operand = &s - strides.data();
          return loops.stride(loops.dims() - 1, operand) == s[d] * extent[d];
        });
    if (joins) {
      loops.extent.back() *= extent[d];
      loops.strides.resize(loops.strides.size() - strides.size());
    } else {
      loops.extent.push_back(extent[d]);
    }
    for (const auto& operand : strides) loops.strides.push_back(operand[d]);
  }
  return loops;
}

}  // namespace shardway::shm
