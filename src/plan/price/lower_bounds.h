// Lower bounds on what steps and paths cost, so that a search prices little exactly.
#pragma once

#include <vector>

#include "plan/price/price.h"

namespace shardway {

// The bounds rest on what must happen on any path. A rank receives what it misses, from at least as many
// peers as are needed to hold that much. A host receives over its border what none of its ranks holds. Where
// there are many ranks only some are looked at: the busiest rank does at least as much as any of them. Holds
// scratch memory: one thread at a time.
class LowerBounds {
 public:
  LowerBounds(const Network& network, int64_t item_bytes);

  // Of any step that communicates.
  Femtoseconds least() const { return least_; }

  // Of one exchange: from the largest boxes alone, and rank by rank.
  Femtoseconds rough_bound_of_step(const StateExchange& exchange) const;
  Femtoseconds bound_of_step(const StateExchange& exchange);

  // Of an all_reduce: every rank receives the other addends of its share, then the other shares.
  Femtoseconds bound_of_all_reduce(const StateSpace& space, size_t state, DimMask dims) const;

  // Of any path of steps: from the largest boxes alone, and in full. `stays` is the number of ranks along the
  // Partial dims that are not resolved.
  Femtoseconds rough_bound_of_path(const StateExchange& exchange, double stays);
  Femtoseconds bound_of_path(const StateExchange& exchange, double stays);

 private:
  // What a rank, or the mean of some ranks, receives: elements and messages, inside the host and from others.
  struct Received {
    double inside = 0;
    double over_border = 0;
    double peers_inside = 0;
    double peers_over_border = 0;
  };
  double us_of(const Received& received) const;
  Femtoseconds bound_of(const Received& received) const;
  double us_of_reach(double origins);
  Femtoseconds bound_of_one(double elements, double origins);
  Femtoseconds bound_of_copies(const StateExchange& exchange);
  Femtoseconds bound_of_sums(const StateExchange& exchange, double addends, double stays);
  Femtoseconds bound_of_mean(const StateExchange& exchange, double addends, double stays, double at_home);
  Femtoseconds bound_of_hosts(const StateExchange& exchange);
  const StateBoxes& looked_at(const StateSpace& space, size_t state) const;
  bool has_sample(const StateSpace& space) const;
  void find_held(const StateExchange& exchange);
  double held_at(const StateExchange& exchange, size_t position) const;
  double held_by_host(const StateExchange& exchange, size_t position) const;
  size_t hosts_looked_at(size_t positions) const;
  double elements_at_home(const StateExchange& exchange);
  double hosts_along(const StateSpace& space, DimMask dims) const;

  const Network& network_;
  double item_;
  bool has_border_;  // hosts lie in blocks, and no link inside is worse than the border
  Link inside_;
  Femtoseconds least_ = 0;
  std::vector<double> held_;      // [receiver looked at]: what it has of its box already
  std::vector<double> reach_us_;  // [origins], -1: not known yet
};

}  // namespace shardway
