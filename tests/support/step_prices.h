// What one step costs, from boxes and ranks. Shares nothing with src/plan but the Layout and the Topology as
// records.
#pragma once

#include <vector>

#include "layout_reference.h"
#include "shardway/topology.h"

namespace shardway::testing {

// A layout and what each position of its mesh holds.
struct Held {
  explicit Held(Layout held);

  Layout layout;
  std::vector<Box> boxes;
  std::vector<Coordinate> coordinates;
};

// Prices steps from layouts on one mesh to layouts on another or the same.
//
// A direct exchange costs its busiest rank: the base, and over link levels the peers (sent to or received
// from, whichever are more) times the latency plus the bytes (sent or received) over the bandwidth. What a
// rank takes from itself is a copy; addends that it reads, its own among them, are reduced.
class StepPrices {
 public:
  StepPrices(const Mesh& senders, const Mesh& receivers, const Topology& topology);

  double exchange_us(const Held& from, const Held& to) const;

  // The addends of `dims` combined on every rank: each rank of a group gets its share of the flat elements
  // from all others, combines it, and sends the result to all others.
  double all_reduce_us(const Held& from, const std::vector<int64_t>& dims) const;

  // The cheaper of both where both lead from one to the other; infinite where neither does.
  double step_us(const Held& from, const Held& to) const;

 private:
  class Work;

  const Topology& topology_;
  size_t ranks_ = 0;
  std::vector<Link> links_;
  std::vector<std::vector<size_t>> levels_;  // [sender][receiver] by position
  std::vector<int64_t> own_sender_;          // of each receiver, -1 outside the senders' mesh
};

}  // namespace shardway::testing
