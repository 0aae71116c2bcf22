// What a step costs in two levels: what its plans move, host by host.
#pragma once

#include <optional>
#include <vector>

#include "plan/hosts/host_map.h"
#include "plan/price/price.h"
#include "shardway/topology.h"

namespace shardway {

struct TwoLevelRank {
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  int64_t staging_bytes = 0;
  double latency_us = 0;
  double us = 0;  // without the base
};

struct TwoLevelStep {
  std::vector<TwoLevelRank> ranks = {};  // by number
  Price price = {};
};

// Prices steps between two meshes by the plans that run (geometry/two_levels.h). A rank pays `within_host`
// for what it reads of the memory of its host, the latency of `between_hosts` for its own messages, and its
// bandwidth for the bytes of its whole host. Each price makes the plans of all ranks anew.
class TwoLevelPrices {
 public:
  TwoLevelPrices(const Topology& topology, const HostMap& hosts) : topology_(topology), hosts_(hosts) {}

  // Nothing if the topology has one level, or all ranks of the meshes are on one host.
  static std::optional<TwoLevelPrices> between(const Topology& topology, const Mesh& from, const Mesh& to);

  TwoLevelStep of(const Layout& from, const Layout& to, bool is_all_reduce) const;

 private:
  Topology topology_;
  HostMap hosts_;
};

// A topology of one level on which no path costs more than in two. Steps may: addends are combined on the way
// in two levels, and a peer brings what began on others.
Topology at_best(const Topology& two_levels, const Mesh& from, const Mesh& to);

}  // namespace shardway
