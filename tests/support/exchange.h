// A collective written down as one list of moves, as seen from outside all ranks.
#pragma once

#include <algorithm>
#include <vector>

#include "shardway/route.h"

namespace shardway::testing {

// The box `source` of rank `from`'s input goes to the box `target` of rank `to`'s output.
struct Transfer {
  int64_t from = 0;
  Box source = {};
  int64_t to = 0;
  Box target = {};
};

// The ranks' shapes and the transfers between them, in the order in which each pair makes them.
struct Exchange {
  std::vector<std::vector<int64_t>> input_shapes = {};
  std::vector<std::vector<int64_t>> output_shapes = {};
  std::vector<Transfer> transfers = {};
  Op op = Op::sum;
  int64_t divisor = 1;
};

inline Route route_of(const Exchange& exchange, int64_t rank) {
  const auto r = static_cast<size_t>(rank);
  Route route{.rank = rank, .size = static_cast<int64_t>(exchange.input_shapes.size())};
  route.input_shape = exchange.input_shapes[r];
  route.output_shape = exchange.output_shapes[r];
  route.op = exchange.op;
  route.divisor = exchange.divisor;
  for (const Transfer& t : exchange.transfers) {
    if (t.to == rank) route.pulls.push_back({.peer = t.from, .mine = t.target, .theirs = t.source});
    if (t.from == rank) route.pushes.push_back({.peer = t.to, .mine = t.source, .theirs = t.target});
  }
  const auto by_peer = [](const Move& a, const Move& b) { return a.peer < b.peer; };
  std::stable_sort(route.pulls.begin(), route.pulls.end(), by_peer);
  std::stable_sort(route.pushes.begin(), route.pushes.end(), by_peer);
  return route;
}

}  // namespace shardway::testing
