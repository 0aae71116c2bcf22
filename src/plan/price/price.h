// What a step costs: its busiest rank, by what it sends and receives over each link level.
#pragma once

#include <cstdint>

#include "plan/price/loads.h"
#include "plan/price/table_prices.h"

namespace shardway {

// Costs are whole femtoseconds: sums are exact, and every rank compares alike.
using Femtoseconds = int64_t;

inline constexpr double kFemtosecondsPerUs = 1e9;
inline constexpr Femtoseconds kNever = INT64_MAX / 4;

inline double in_us(Femtoseconds cost) { return static_cast<double>(cost) / kFemtosecondsPerUs; }

Femtoseconds to_femtoseconds(double us);
double us_for(double bytes, const Link& link);

// What the loads of one kind of ranks take, without the base.
struct LoadTime {
  double latency_us = 0;
  double transfer_us = 0;
  double local_us = 0;  // copies and reductions

  double us() const { return latency_us + transfer_us + local_us; }
  // Two phases with the same transfers, turned round in the second; the local work is done once.
  LoadTime in_two_phases() const { return {2 * latency_us, 2 * transfer_us, local_us}; }
};
LoadTime time_of(const Loads& loads, size_t kind, const Network& network, int64_t item_bytes);

struct Price {
  Femtoseconds cost = 0;
  double latency_us = 0;    // of the busiest rank, the base included
  int64_t bytes = 0;        // sent by the rank that sends most
  int64_t total_bytes = 0;  // sent by all
  bool communicates = false;
  int64_t most_received_from = 0;  // by one rank
  int64_t crossing_bytes = 0;      // between hosts, in two levels
  bool is_extrapolated = false;    // beyond the sizes that were measured
};

// Prices steps between the states of one network. Holds scratch memory: one thread at a time.
class PriceList {
 public:
  // With a table the figures of the network count only for steps that move nothing between ranks.
  PriceList(const Network& network, int64_t item_bytes, const TablePrices* table = nullptr);

  const Network& network() const { return network_; }

  Price of_exchange(const StateExchange& exchange);

  // What the ranks of an exchange read.
  ReadLoad load_of(const StateExchange& exchange);

  // The addends along `dims` combined on every rank in two phases with one base: every rank combines its
  // share of the box (all_reduce_shares.h), then the shares are gathered.
  Price of_all_reduce(const StateSpace& space, size_t state, DimMask dims) const;

  // Elements that the rank at `position` keeps beside its box: the addends of a reduction, until it is done.
  double staging_of(const StateExchange& exchange, size_t position) const;

 private:
  void count(const StateExchange& exchange);
  Price of_loads() const;
  ReadLoad counted_load() const;
  void price_by_table(const StateExchange& exchange, Price& price) const;
  void price_by_table(ReadPattern pattern, const ReadLoad& load, Price& price) const;

  const Network& network_;
  int64_t item_bytes_;
  const TablePrices* table_;
  bool has_rings_;  // and so many ranks that counting by rings is quicker
  OverlapsByBlock overlaps_;
  Loads loads_;
};

}  // namespace shardway
