// What one rank sends and receives in a step, and how long that takes it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shardway/plan.h"

namespace shardway::page {

// A part of the tensor that a rank takes from a peer or, where peer is the rank itself, keeps.
struct Pull {
  int64_t peer = 0;
  Box box = {};  // in the tensor
};

struct Traffic {
  std::vector<Pull> pulls = {};
  int64_t sent = 0;  // bytes, to other ranks
  int64_t received = 0;
  double us = 0;  // by the topology
};

// Of an all_reduce the pulls are the addends that a rank's box is made of; bytes and time are those of its
// two phases, in which a rank combines a share of the box and then gathers the shares.
Traffic traffic_of(const Step& step, int64_t rank, const Topology& topology);

}  // namespace shardway::page
