// What a step costs on one host by the calls that were measured there.
#pragma once

#include <cstdint>
#include <optional>

#include "shardway/topology.h"

namespace shardway {

// How the ranks of a step read: what several want too, addends for a part of the result, addends for the
// whole of it, or what nobody else wants.
enum class ReadPattern : uint8_t { gather, combine, combine_in_place, exchange };

// What the ranks of a step read, their own memory included.
struct ReadLoad {
  double most_bytes = 0;       // by one rank
  double mean_bytes = 0;       // over all ranks
  double mean_kept_bytes = 0;  // of those, what a rank reads from itself
  int64_t peers = 0;           // that one rank reads from, at most

  // Takes note of ranks that do the same. `share` is their share of all ranks.
  void add(double bytes, double kept_bytes, double share) {
    most_bytes = most_bytes > bytes ? most_bytes : bytes;
    mean_bytes += share * bytes;
    mean_kept_bytes += share * kept_bytes;
  }
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

  const PriceTable& table() const { return table_; }

  // Of a step of a redistribution.
  TablePrice of_step(ReadPattern pattern, const ReadLoad& load) const;

  // Of the collective alone.
  TablePrice of(ReadPattern pattern, const ReadLoad& load) const;

  // An exchange lies between three that were measured: a permute, with one peer, of which nothing is kept; an
  // all_to_all, with all peers; and exchanges of which most is kept. Those were steps, and `step_us` is what
  // steps like the first two cost more. 4 ranks that keep half and read from one peer, where kept_share is
  // 0.8: 3/8 of a permute and 5/8 of an exchange.
  TablePrice of_exchange(const ReadLoad& load, double step_us) const;

  // Figures by which no step costs more than by the table, for a search that bounds what it has not priced.
  Topology at_best(const Topology& topology) const;

 private:
  PriceTable table_;
  int64_t ranks_;  // that are priced; the table may have been measured with others
};

}  // namespace shardway
