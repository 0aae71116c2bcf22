// Bounds from below on what steps and paths cost, so that a search prices little exactly.
#pragma once

#include <vector>

#include "plan/price/price.h"

namespace shardway {

// Where there are many ranks only some are looked at: what one of them must do, the busiest must.
//
// They rest on what must happen whatever way is taken: a rank receives what it misses, from at least as many
// peers as it takes to hold that much; a host receives over its border what none of its ranks holds.
// Holds scratch memory: one thread at a time.
class Floors {
 public:
  Floors(const Network& network, int64_t item_bytes);

  // Of any step that communicates.
  Femtoseconds least() const { return least_; }

  // Of one exchange: from the largest boxes alone, and rank by rank.
  Femtoseconds rough_floor_of_step(const Exchange& exchange) const;
  Femtoseconds floor_of_step(const Exchange& exchange);

  // Of an all_reduce: every rank receives the other addends of its share, then the other shares.
  Femtoseconds floor_of_all_reduce(const Terrain& terrain, size_t state, DimMask dims) const;

  // Of any path of steps: from the largest boxes alone, and in full. `stays` counts the coordinates of
  // Partial dims that are not resolved.
  Femtoseconds rough_floor_of_path(const Exchange& exchange, double stays);
  Femtoseconds floor_of_path(const Exchange& exchange, double stays);

 private:
  // What a rank, or the mean of some ranks, receives: elements and messages, inside the host and from others.
  struct Received {
    double inside = 0;
    double over_border = 0;
    double peers_inside = 0;
    double peers_over_border = 0;
  };
  double us_of(const Received& received) const;
  Femtoseconds floor_of(const Received& received) const;
  double us_of_reach(double origins);
  Femtoseconds floor_of_one(double elements, double origins);
  Femtoseconds floor_of_copies(const Exchange& exchange);
  Femtoseconds floor_of_sums(const Exchange& exchange, double addends, double stays);
  Femtoseconds floor_of_mean(const Exchange& exchange, double addends, double stays, double at_home);
  Femtoseconds floor_of_hosts(const Exchange& exchange);
  const Bounds& looked_at(const Terrain& terrain, size_t state) const;
  bool has_sample(const Terrain& terrain) const;
  void find_held(const Exchange& exchange);
  double held_at(const Exchange& exchange, size_t position) const;
  double held_by_host(const Exchange& exchange, size_t position) const;
  size_t hosts_looked_at(size_t positions) const;
  double elements_at_home(const Exchange& exchange);
  double hosts_along(const Terrain& terrain, DimMask dims) const;

  const Network& network_;
  double item_;
  bool has_border_;  // hosts lie in blocks, and no link inside is worse than the border
  Link inside_;
  Femtoseconds least_ = 0;
  std::vector<double> held_;      // [receiver looked at]: what it has of its box already
  std::vector<double> reach_us_;  // [origins], -1: not known yet
};

}  // namespace shardway
