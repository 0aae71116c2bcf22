// The plans of calls whose routes every rank knows of every other.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "plan/hosts/hosts_all_reduce.h"
#include "plan/hosts/two_levels.h"

namespace shardway {

// What such a call is planned by. The same on every rank.
struct KnownCall {
  Pattern pattern = Pattern::all_reduce;  // or a broadcast, which is spread
  ReducedRun run = {};
  Op op = Op::sum;
  int64_t divisor = 1;
  int64_t root = 0;

  auto operator<=>(const KnownCall&) const = default;
};

struct PlannedRoute {
  Route route = {};
  TwoLevels plan = {};
};

// Two routes of contiguous runs. The first fills a part of the output, the second reads that part and fills
// the rest.
struct PlannedCall {
  Box first_part = {};
  PlannedRoute first = {};
  PlannedRoute second = {};
};

// Nobody has to tell the others of its host what it moves.
class KnownPlans {
 public:
  KnownPlans(HostMap hosts, int64_t rank) : hosts_(std::move(hosts)), rank_(rank) {}

  std::shared_ptr<const PlannedCall> planned(const KnownCall& call);

 private:
  PlannedCall made(const KnownCall& call) const;

  HostMap hosts_;
  int64_t rank_;
  std::map<KnownCall, std::shared_ptr<const PlannedCall>> kept_;
};

}  // namespace shardway
