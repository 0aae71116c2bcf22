#include "plan/price/step_traffic.h"

#include <numeric>
#include <utility>

#include "plan/geometry/all_reduce_shares.h"
#include "plan/geometry/exchange_rules.h"
#include "plan/price/price.h"

namespace shardway {
namespace {

size_t position_in(const Mesh& mesh, int64_t rank) { return static_cast<size_t>(*mesh.position_of(rank)); }

int64_t elements_of(const std::vector<double>& by_level) {
  return static_cast<int64_t>(std::accumulate(by_level.begin(), by_level.end(), 0.0));
}

}  // namespace

StepTraffic::StepTraffic(const Step& step, const Topology& topology)
    : step_(step),
      has_table_(TablePrices::between(topology, step.from.mesh(), step.to.mesh()).has_value()),
      network_(topology, step.from.mesh(), step.to.mesh()),
      item_bytes_(item_bytes(step.from.dtype())) {
  if (const auto prices = TwoLevelPrices::between(topology, step.from.mesh(), step.to.mesh()))
    in_two_levels_ = prices->of(step.from, step.to, step.kind == StepKind::all_reduce);
}

RankTraffic StepTraffic::of(const Route& route) const {
  RankTraffic traffic = in_two_levels_                       ? of_two_levels(route.rank)
                        : step_.kind == StepKind::all_reduce ? of_all_reduce(route.rank)
                                                             : of_exchange(route);
  if (traffic.us == 0 || step_.total_bytes == 0) return traffic;
  traffic.us = has_table_ ? step_.cost_us : traffic.us + network_.base_us();
  return traffic;
}

RankTraffic StepTraffic::of_two_levels(int64_t rank) const {
  const TwoLevelRank& found = in_two_levels_->ranks[static_cast<size_t>(rank)];
  return {.sent_bytes = found.sent_bytes, .received_bytes = found.received_bytes, .us = found.us};
}

RankTraffic StepTraffic::of_exchange(const Route& route) const {
  const bool combines = !exchange_rules_between(step_.from, step_.to).resolved.empty();
  const Mesh& senders = step_.from.mesh();
  const Mesh& receivers = step_.to.mesh();
  Loads loads;
  loads.reset(1, network_.links().size());
  int64_t last_peer = route.rank;
  for (const Move& push : route.pushes) {
    if (push.peer == route.rank || push.mine.volume() == 0) continue;
    const size_t level =
        network_.level_between(position_in(senders, route.rank), position_in(receivers, push.peer));
    loads.sent[level] += static_cast<double>(push.mine.volume());
    if (push.peer != std::exchange(last_peer, push.peer)) ++loads.sent_to[level];
  }
  last_peer = route.rank;
  for (const Move& pull : route.pulls) {
    const auto elements = static_cast<double>(pull.mine.volume());
    if (combines) loads.combined[0] += elements;
    if (pull.peer == route.rank) loads.copied[0] += elements;
    if (pull.peer == route.rank || elements == 0) continue;
    const size_t level =
        network_.level_between(position_in(senders, pull.peer), position_in(receivers, route.rank));
    loads.received[level] += elements;
    if (pull.peer != std::exchange(last_peer, pull.peer)) ++loads.received_from[level];
  }
  return {.sent_bytes = elements_of(loads.sent) * item_bytes_,
          .received_bytes = elements_of(loads.received) * item_bytes_,
          .us = time_of(loads, 0, network_, item_bytes_).us()};
}

RankTraffic StepTraffic::of_all_reduce(int64_t rank) const {
  const Mesh& mesh = step_.from.mesh();
  const auto position = mesh.position_of(rank);
  if (!position) return {};
  const Mesh members = mesh.submesh(step_.mesh_dims, rank);
  const AllReduceShares shares(step_.from.box_at(*position).extent, members.size());
  const int64_t own = shares.of(*members.position_of(rank));
  Loads loads;  // while shares are combined
  loads.reset(1, network_.links().size());
  loads.combined[0] = static_cast<double>(own * members.size());
  for (int64_t i = 0; i < members.size(); ++i) {
    const int64_t peer = members.ranks()[static_cast<size_t>(i)];
    if (peer == rank) continue;
    const size_t level = network_.level_between(static_cast<size_t>(*position), position_in(mesh, peer));
    loads.sent[level] += static_cast<double>(shares.of(i));
    loads.sent_to[level] += shares.of(i) > 0 ? 1 : 0;
    loads.received[level] += static_cast<double>(own);
    loads.received_from[level] += own > 0 ? 1 : 0;
  }
  // While they are collected, a rank sends what it has received before, and receives what it has sent.
  const int64_t bytes = (elements_of(loads.sent) + elements_of(loads.received)) * item_bytes_;
  return {.sent_bytes = bytes,
          .received_bytes = bytes,
          .us = time_of(loads, 0, network_, item_bytes_).in_two_phases().us()};
}

}  // namespace shardway
