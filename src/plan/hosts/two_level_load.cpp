#include "plan/hosts/two_level_load.h"

#include <utility>

namespace shardway {
namespace {

int64_t addend_bytes(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 ? item_bytes(DType::f32) : item_bytes(dtype);
}

// Elements to or from others, the ranks that they are, and the moves.
struct Traffic {
  int64_t elements = 0;
  int64_t peers = 0;
  int64_t moves = 0;
};

Traffic traffic_of(const Moves& moves, int64_t rank) {
  Traffic traffic;
  int64_t last = rank;
  for (const Move& move : moves) {  // ordered by peer
    if (move.peer == rank || move.mine.volume() == 0) continue;
    traffic.elements += move.mine.volume();
    ++traffic.moves;
    if (move.peer != std::exchange(last, move.peer)) ++traffic.peers;
  }
  return traffic;
}

void add_inside(const Route& route, int64_t bytes, TwoLevelLoad& load) {
  const Traffic in = traffic_of(route.pulls, route.rank);
  load.sent_inside += traffic_of(route.pushes, route.rank).elements * bytes;
  load.received_inside += in.elements * bytes;
  load.peers_read += in.peers;
}

void add_across(const Route& route, int64_t bytes, TwoLevelLoad& load) {
  const Traffic in = traffic_of(route.pulls, route.rank);
  const Traffic out = traffic_of(route.pushes, route.rank);
  load.sent_across += out.elements * bytes;
  load.received_across += in.elements * bytes;
  load.messages_sent += out.moves;
  load.messages_received += in.moves;
}

int64_t own_elements(const Route& route) {
  int64_t elements = 0;
  for (const Move& pull : route.pulls) elements += pull.peer == route.rank ? pull.mine.volume() : 0;
  return elements;
}

int64_t combined_elements(const TwoLevels& plan) {
  int64_t elements = 0;
  for (const Move& pull : plan.sums.pulls) elements += pull.mine.volume();
  for (const HostSum& sum : plan.host_sums)
    elements += sum.box.volume() * static_cast<int64_t>(sum.operands.size());
  return elements;
}

}  // namespace

TwoLevelLoad load_of(const TwoLevels& plan, DType dtype) {
  const int64_t item = item_bytes(dtype);
  const int64_t wide = addend_bytes(dtype);
  TwoLevelLoad load;
  add_inside(plan.sums, wide, load);
  add_inside(plan.home, item, load);
  add_inside(plan.handover, item, load);
  add_across(plan.copies, item, load);
  add_across(plan.crossing, wide, load);

  const int64_t staged = plan.stages_input ? plan.staged_elements : 0;
  const int64_t landed = plan.lands_aside ? plan.landed_elements : 0;
  const int64_t unpacked = plan.host_sums.empty() ? landed : 0;
  load.copied = (own_elements(plan.home) + staged + unpacked) * item;
  load.combined = combined_elements(plan) * wide;
  load.staging =
      (staged + landed) * item + (plan.sums.output_shape[0] + plan.crossing.output_shape[0]) * wide;
  if (plan.has_sums && wide != item) {
    load.copied += plan.staged_elements * wide;
    load.staging += plan.staged_elements * wide;
  }
  return load;
}

}  // namespace shardway
