// What a step costs on one host by the calls that were measured there.
#pragma once

#include <cstdint>
#include <optional>

#include "shardway/topology.h"

namespace shardway {

// How the ranks of a step read: what several want too, addends for a part of the result, addends for the
// whole of it, or what nobody else wants.
enum class ReadPattern : uint8_t { gather, combine, combine_in_place, exchange };

// What the ranks of a step read. Their own memory counts by TablePrices::own_share.
struct ReadLoad {
  double most_bytes = 0;  // by one rank
  double mean_bytes = 0;  // over all ranks
  int64_t peers = 0;      // that one rank reads from, at most
};

struct TablePrice {
  double us = 0;
  double latency_us = 0;  // of the smallest size that was measured: what it costs to meet
  bool is_extrapolated = false;
};

class TablePrices {
 public:
  TablePrices(const PriceTable& table, int64_t ranks) : table_(table), ranks_(ranks) {}

  // Nothing if the topology has no tables, or has links of mesh dims, or the ranks are on several hosts.
  static std::optional<TablePrices> between(const Topology& topology, const Mesh& from, const Mesh& to);

  double own_share(ReadPattern pattern) const {
    return pattern == ReadPattern::exchange ? table_.own_share : 1;
  }

  // An exchange lies between a permute, with one peer, and an all_to_all, with all of them.
  TablePrice of(ReadPattern pattern, const ReadLoad& load) const;

  // Figures by which no step costs more than by the table, for a search that bounds what it has not priced.
  Topology at_best(const Topology& topology) const;

 private:
  PriceTable table_;
  int64_t ranks_;  // that are priced; the table may have been measured with others
};

}  // namespace shardway
