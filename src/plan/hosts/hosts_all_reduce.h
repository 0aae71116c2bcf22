// An all-reduce among ranks of several hosts.
#pragma once

#include <cstdint>

#include "plan/geometry/all_reduce_shares.h"
#include "plan/hosts/host_map.h"

namespace shardway {

// What is reduced: a run of elements. A host's sums may be wider than the result.
struct ReducedRun {
  int64_t elements = 0;
  int64_t element_bytes = 0;
  int64_t sum_bytes = 0;  // of an element of a host's sum

  auto operator<=>(const ReducedRun&) const = default;
};

// Whether the hosts exchange their sums of everything, once. If not, each gets the sums of its shares, and
// then the results of the others'.
bool exchanges_sums_once(const ReducedRun& run, const HostMap& hosts);

// One rank's part, as two routes. Only carriers combine (carriers.h). Among more than two hosts each of them
// combines a share of its own, and then every rank collects the shares that it lacks.
//
// Between two hosts, each host combines everything: the run is shared among the carriers of each, and a rank
// collects the other shares inside its host. As many bytes cross each way, in half the messages, and none in
// the second route.
//
// Example, 8 elements of 128 KiB, hosts {0, 1} and {2, 3}: ranks 0 and 2 combine elements [0,4) of all four
// ranks, ranks 1 and 3 elements [4,8). Rank 0 sends its host's sum of [0,4) to rank 2 and gets the other
// host's. Then it takes [4,8) from rank 1. Of 4 bytes, ranks 0 and 2 combine all 8 elements, and rank 1 takes
// them from rank 0.
AllReduceRoutes all_reduce_routes(const ReducedRun& run, int64_t rank, const HostMap& hosts);

}  // namespace shardway
