// What single ranks send and receive in a step of a plan, and how long that takes them.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/price/network.h"
#include "plan/price/two_level_prices.h"
#include "shardway/plan.h"

namespace shardway {

struct RankTraffic {
  int64_t sent_bytes = 0;  // to other ranks
  int64_t received_bytes = 0;
  // By the topology, the base included; 0 where the rank does nothing. By a table, which has whole calls, it
  // is the same for all ranks that do something.
  double us = 0;
};

// The busiest rank takes as long as the step costs, if the step was priced with this topology.
class StepTraffic {
 public:
  StepTraffic(const Step& step, const Topology& topology);

  // Of the rank whose redistribution_route between the step's layouts this is. An all_reduce moves other
  // boxes than that route: its rank combines a share and then collects the other shares. In two levels the
  // routes of all ranks count.
  RankTraffic of(const Route& route) const;

 private:
  RankTraffic of_two_levels(int64_t rank) const;
  RankTraffic of_exchange(const Route& route) const;
  RankTraffic of_all_reduce(int64_t rank) const;

  const Step& step_;
  std::optional<TwoLevelStep> in_two_levels_;
  bool has_table_;
  Network network_;
  int64_t item_bytes_;
};

}  // namespace shardway
