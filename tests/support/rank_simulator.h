// Ranks that run a route on dense arrays of integers, element by element: what a route means.
#pragma once

#include <vector>

#include "shardway/route.h"

namespace shardway::testing {

using Shape = std::vector<int64_t>;
using Index = std::vector<int64_t>;

// A row-major n-d array.
struct Dense {
  Shape shape = {};
  std::vector<int64_t> values = {};

  static Dense filled(const Shape& shape, int64_t value);

  // Throws std::out_of_range outside the shape.
  int64_t& at(const Index& index);
  int64_t at(const Index& index) const;

  bool operator==(const Dense&) const = default;
};

// Every index of a box, in row-major order.
std::vector<Index> indices_of(const Box& box);

bool is_inside(const Index& index, const Box& box);

// What a rank has after a collective: its output, and how many pulls landed on each element of it.
struct Outcome {
  Dense output = {};
  Dense landed = {};
};

// What an element holds on which nothing landed.
inline constexpr int64_t kUntouched = -999'999;

// Runs one route per rank. A message is what a push reads, in row-major order; the k-th push of a to b
// is taken by the k-th pull of b from a. Only the `mine` boxes are read, as by a transport that moves
// messages. Throws std::logic_error when a message is missing, left over or of another length, or when
// a division leaves a rest.
std::vector<Outcome> simulate(const std::vector<Route>& routes, const std::vector<Dense>& inputs);

// The sum over ranks and elements of a times b.
int64_t inner_product(const std::vector<Dense>& a, const std::vector<Dense>& b);

}  // namespace shardway::testing
