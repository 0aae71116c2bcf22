// A broadcast to several hosts, for which the other hosts help the root's.
#pragma once

#include <cstdint>

#include "plan/hosts/host_map.h"
#include "shardway/route.h"

namespace shardway {

// Sent by its root alone, a tensor leaves the root's host once for each other host. Here each other host gets
// a share of it first (`shares`), and then the hosts hand their shares on to one another (`collection`, from
// and into what `shares` left). A host's share goes to its carriers (carriers.h). The root keeps a share to
// hand on, too. Every element still comes to every host once. The ranks of the root's host take everything
// from the root at first.
//
// Example, 4 hosts, 12 elements, root on host 0: hosts 1, 2 and 3 get 3 elements each, and then from the
// others and the root the 9 that they lack. The root's host sends 9 and 9 elements instead of 36.
struct SpreadBroadcast {
  Route shares = {};
  Route collection = {};
};

SpreadBroadcast spread_broadcast(int64_t elements, int64_t element_bytes, int64_t root, int64_t rank,
                                 const HostMap& hosts);

}  // namespace shardway
