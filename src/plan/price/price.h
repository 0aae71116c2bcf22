// What a step costs: its busiest rank, by what it sends and receives over each link level.
#pragma once

#include <cstdint>

#include "plan/price/loads.h"

namespace shardway {

// Costs are whole femtoseconds, so that sums are exact and every rank compares alike.
using Femtoseconds = int64_t;

inline constexpr double kFemtosecondsPerUs = 1e9;
inline constexpr Femtoseconds kNever = INT64_MAX / 4;

inline double in_us(Femtoseconds cost) { return static_cast<double>(cost) / kFemtosecondsPerUs; }

Femtoseconds to_femtoseconds(double us);
double us_for(double bytes, const Link& link);

struct Price {
  Femtoseconds cost = 0;
  double latency_us = 0;    // of the busiest rank, the base included
  int64_t bytes = 0;        // sent by the rank that sends most
  int64_t total_bytes = 0;  // sent by all
  bool communicates = false;
  int64_t most_received_from = 0;  // by one rank
};

// Prices steps between the states of one network. Holds scratch memory: one thread at a time.
class PriceList {
 public:
  PriceList(const Network& network, int64_t item_bytes);

  const Network& network() const { return network_; }

  Price of_exchange(const Exchange& exchange);

  // The addends along `dims` combined on every rank in two phases with one base: every rank combines a
  // share of its box, of equal numbers of elements as torch.chunk splits, then the shares are gathered.
  Price of_all_reduce(const Terrain& terrain, size_t state, DimMask dims) const;

  // Elements received on the worst rank beyond its box: the addends that a reduction keeps until it is done.
  double staging_of(const Exchange& exchange, size_t position) const;

 private:
  Price of_loads() const;

  const Network& network_;
  int64_t item_bytes_;
  bool has_rings_;  // and so many ranks that counting them is quicker
  RingSums sums_;
  Loads loads_;
};

}  // namespace shardway
