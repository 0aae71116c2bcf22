#include "plan/price/lower_bounds.h"

#include <algorithm>
#include <cmath>

namespace shardway {
namespace {

// The most that one rank of the source can hold of one box of the target.
double most_from_one(const StateExchange& exchange) {
  const double* there = exchange.senders.longest(exchange.from);
  const double* here = exchange.receivers.longest(exchange.to);
  double most = 1;
  for (size_t d = 0; d < exchange.senders.shape().size(); ++d) most *= std::min(there[d], here[d]);
  return most;
}

double elements_of(const StateSpace& space) {
  double elements = 1;
  for (const int64_t length : space.shape()) elements *= static_cast<double>(length);
  return elements;
}

double peers_for(double elements, double most_from_one) {
  return elements <= 0 ? 0 : std::ceil(elements / most_from_one);
}

// Rounds so that no bound exceeds its price. Where both are the same number, they stay so to the femtosecond.
Femtoseconds rounded_down(double us) { return to_femtoseconds(us - std::max(1e-11, us * 1e-15)); }

}  // namespace

LowerBounds::LowerBounds(const Network& network, int64_t item_bytes)
    : network_(network), item_(static_cast<double>(item_bytes)) {
  const Link& border = network.border();
  const Link& inside = network.quickest_inside();
  has_border_ = network.host_block() > 0 && border.latency_us >= inside.latency_us &&
                border.gib_per_s <= inside.gib_per_s;
  inside_ = has_border_ ? inside : network.quickest();
  least_ = rounded_down(inside_.latency_us + network.base_us());
}

// Of all ranks, or of a sample.
const StateBoxes& LowerBounds::looked_at(const StateSpace& space, size_t state) const {
  return has_sample(space) ? space.sampled(state) : space.boxes(state);
}

bool LowerBounds::has_sample(const StateSpace& space) const {
  return network_.is_one_mesh() && !space.sample().empty();
}

double LowerBounds::us_of(const Received& received) const {
  double us = received.peers_inside * inside_.latency_us;
  us += us_for(received.inside * item_, inside_);
  if (received.over_border > 0) {
    us += received.peers_over_border * network_.border().latency_us;
    us += us_for(received.over_border * item_, network_.border());
  }
  return us + network_.base_us();
}

Femtoseconds LowerBounds::bound_of(const Received& received) const { return rounded_down(us_of(received)); }

// The least latency for a rank that needs what began on `origins` other ranks. After steps with at most k1,
// k2, … peers it can have heard of (1 + k1)(1 + k2)… ranks, itself included.
double LowerBounds::us_of_reach(double origins) {
  const auto index = static_cast<size_t>(origins);
  if (reach_us_.size() <= index) reach_us_.resize(index + 1, -1);
  double& known = reach_us_[index];
  if (known >= 0) return known;
  double least_us = network_.base_us() + origins * inside_.latency_us;
  for (double steps = 2; steps <= 12; ++steps) {
    const double peers = std::max(1.0, std::pow(origins + 1, 1 / steps) - 1);
    least_us = std::min(least_us, steps * (network_.base_us() + peers * inside_.latency_us));
  }
  return known = least_us;
}

// A path on which one rank receives `elements` elements that began on `origins` other ranks.
Femtoseconds LowerBounds::bound_of_one(double elements, double origins) {
  return rounded_down(us_of_reach(origins) + us_for(elements * item_, inside_));
}

// Looks at the largest box. Its rank holds at most as much of it as any one rank can.
Femtoseconds LowerBounds::rough_bound_of_step(const StateExchange& exchange) const {
  const double most = most_from_one(exchange);
  const double missing =
      exchange.senders.ranks_along(exchange.resolved) * exchange.receivers.largest_volume(exchange.to) - most;
  return missing <= 0 ? 0 : bound_of({.inside = missing, .peers_inside = peers_for(missing, most)});
}

Femtoseconds LowerBounds::rough_bound_of_path(const StateExchange& exchange, double stays) {
  const double most = most_from_one(exchange);
  const double largest = exchange.receivers.largest_volume(exchange.to);
  const double addends = exchange.senders.ranks_along(exchange.resolved);
  const double received = addends > 1 ? largest : largest - most;
  if (received <= 0) return 0;
  if (addends == 1) return bound_of_one(received, peers_for(received, most));
  const double elements = elements_of(exchange.receivers);
  return std::max(bound_of_one(received, addends * peers_for(largest, most) - 1),
                  bound_of_mean(exchange, addends, stays, elements));
}

Femtoseconds LowerBounds::bound_of_step(const StateExchange& exchange) {
  const StateBoxes& here = looked_at(exchange.receivers, exchange.to);
  const double addends = exchange.senders.ranks_along(exchange.resolved);
  const double addends_inside =
      has_border_ ? addends / hosts_along(exchange.senders, exchange.resolved) : addends;
  const double most = most_from_one(exchange);
  find_held(exchange);
  double highest_us = 0;
  double missing_most = 0;
  for (size_t i = 0; i < held_.size(); ++i) {
    const double missing = addends * here.volumes[i] - held_[i];
    if (missing <= 0 || (!has_border_ && missing <= missing_most)) continue;
    missing_most = missing;
    double over_border = 0;
    if (has_border_) {
      const size_t position = has_sample(exchange.receivers) ? exchange.receivers.sample()[i] : i;
      over_border =
          std::max(0.0, addends * here.volumes[i] - addends_inside * held_by_host(exchange, position));
    }
    const double inside = missing - over_border;
    highest_us = std::max(highest_us, us_of({.inside = inside,
                                             .over_border = over_border,
                                             .peers_inside = peers_for(inside, most),
                                             .peers_over_border = peers_for(over_border, most)}));
  }
  return highest_us > 0 ? rounded_down(highest_us) : 0;
}

Femtoseconds LowerBounds::bound_of_all_reduce(const StateSpace& space, size_t state, DimMask dims) const {
  const double members = space.ranks_along(dims);
  const double volume = space.largest_volume(state);
  if (members == 1 || volume == 0) return 0;
  const double peers = std::min(members, volume) - 1;
  return bound_of({.inside = 2 * volume * (1 - 1 / members), .peers_inside = 2 * peers});
}

Femtoseconds LowerBounds::bound_of_path(const StateExchange& exchange, double stays) {
  const double addends = exchange.senders.ranks_along(exchange.resolved);
  return addends == 1 ? bound_of_copies(exchange) : bound_of_sums(exchange, addends, stays);
}

Femtoseconds LowerBounds::bound_of_copies(const StateExchange& exchange) {
  const StateBoxes& wanted = looked_at(exchange.receivers, exchange.to);
  find_held(exchange);
  double most_missing = 0;
  for (size_t i = 0; i < held_.size(); ++i)
    most_missing = std::max(most_missing, wanted.volumes[i] - held_[i]);
  if (most_missing == 0) return 0;
  const Femtoseconds highest = bound_of_one(most_missing, peers_for(most_missing, most_from_one(exchange)));
  return has_border_ ? std::max(highest, bound_of_hosts(exchange)) : highest;
}

// The ranks of a host share what comes over its border: the busiest costs no less than their mean.
Femtoseconds LowerBounds::bound_of_hosts(const StateExchange& exchange) {
  const StateBoxes& here = exchange.receivers.boxes(exchange.to);
  const double most = most_from_one(exchange);
  const auto block = static_cast<size_t>(network_.host_block());
  const auto ranks = static_cast<double>(block);
  Femtoseconds highest = 0;
  for (size_t host = 0; host < hosts_looked_at(here.positions); ++host) {
    double in_all = 0;
    double reach_us = 0;
    for (size_t r = host * block; r < (host + 1) * block; ++r) {
      const double missing = here.volumes[r] - held_at(exchange, r);
      in_all += missing;
      reach_us += std::max(network_.base_us(), us_of_reach(peers_for(missing, most)));
    }
    if (in_all == 0) continue;
    const Reach& wanted = exchange.receivers.reach(exchange.to, block, host);
    const double over_border =
        wanted.volume - common_volume(exchange.senders.reach(exchange.from, block, host), wanted);
    const double us =
        us_of({.inside = std::max(0.0, in_all - over_border) / ranks, .over_border = over_border / ranks});
    highest = std::max(highest, rounded_down(us + reach_us / ranks - network_.base_us()));
  }
  return highest;
}

// With addends on n ranks, each element needs n - 1 messages before some rank has its sum, or n if no rank
// with an addend is to hold the sum. Every further rank that is to hold it needs one more. The same holds for
// hosts and the messages over their borders.
Femtoseconds LowerBounds::bound_of_sums(const StateExchange& exchange, double addends, double stays) {
  const double largest = exchange.receivers.largest_volume(exchange.to);
  if (largest == 0) return 0;
  return std::max(bound_of_mean(exchange, addends, stays, elements_at_home(exchange)),
                  bound_of_one(largest, addends * peers_for(largest, most_from_one(exchange)) - 1));
}

Femtoseconds LowerBounds::bound_of_mean(const StateExchange& exchange, double addends, double stays,
                                        double at_home) {
  const StateSpace& receivers = exchange.receivers;
  const double elements = stays * elements_of(receivers);
  const double in_all =
      elements * (addends - 2) + receivers.total_volume(exchange.to) + elements - stays * at_home;
  double over_border = 0;
  const double hosts = has_border_ ? hosts_along(exchange.senders, exchange.resolved) : 1;
  if (hosts > 1) {
    // Of the mesh dims that the target does not cut, an addend's own hold every element on each coordinate.
    const double holding = hosts_along(receivers, exchange.resolved & ~receivers.state(exchange.to).sharded);
    over_border = elements * (hosts + holding - 2);
  }
  const auto ranks = static_cast<double>(network_.ranks());
  const double us =
      us_of({.inside = std::max(0.0, in_all - over_border) / ranks, .over_border = over_border / ranks});
  const double further_us = us_of_reach(addends - 1) - network_.base_us();
  return rounded_down(us + receivers.filled(exchange.to) / ranks * further_us);
}

// The elements that some rank holds both before and after. Ranks along dims that cut in neither state hold
// the same ones, so the sum over all ranks is divided by their number.
double LowerBounds::elements_at_home(const StateExchange& exchange) {
  const double elements = elements_of(exchange.receivers);
  if (!network_.is_one_mesh() || has_sample(exchange.receivers)) return elements;
  find_held(exchange);
  const DimMask cutting =
      exchange.senders.state(exchange.from).sharded | exchange.receivers.state(exchange.to).sharded;
  double held = 0;
  for (const double volume : held_) held += volume;
  return held / exchange.senders.ranks_along(~cutting);
}

void LowerBounds::find_held(const StateExchange& exchange) {
  const StateBoxes& there = looked_at(exchange.senders, exchange.from);
  const StateBoxes& here = looked_at(exchange.receivers, exchange.to);
  if (!network_.is_one_mesh()) {
    held_.resize(here.positions);
    for (size_t r = 0; r < held_.size(); ++r) held_[r] = held_at(exchange, r);
    return;
  }
  held_.assign(here.positions, 1);
  double* held = held_.data();
  for (size_t d = 0; d < exchange.senders.shape().size(); ++d) {
    const double* begin_there = there.begin_of(d);
    const double* begin_here = here.begin_of(d);
    const double* end_there = there.end_of(d);
    const double* end_here = here.end_of(d);
    for (size_t r = 0; r < here.positions; ++r) {
      const double begin = begin_there[r] > begin_here[r] ? begin_there[r] : begin_here[r];
      const double end = end_there[r] < end_here[r] ? end_there[r] : end_here[r];
      held[r] *= end > begin ? end - begin : 0.0;
    }
  }
}

double LowerBounds::held_at(const StateExchange& exchange, size_t position) const {
  const int64_t own = network_.own_sender(position);
  if (own < 0) return 0;
  return common_volume(exchange.senders.boxes(exchange.from), static_cast<size_t>(own),
                       exchange.receivers.boxes(exchange.to), position);
}

size_t LowerBounds::hosts_looked_at(size_t positions) const {
  constexpr size_t kMostHosts = 8;
  return std::min(kMostHosts, positions / static_cast<size_t>(network_.host_block()));
}

// How much of a receiver's box the ranks of its host hold together. Each element counts once.
double LowerBounds::held_by_host(const StateExchange& exchange, size_t position) const {
  const auto block = static_cast<size_t>(network_.host_block());
  const Reach& reach = exchange.senders.reach(exchange.from, block, position / block);
  const StateBoxes& here = exchange.receivers.boxes(exchange.to);
  double volume = 1;
  for (size_t d = 0; d < reach.spans.size(); ++d) {
    double length = 0;
    for (const Reach::Span& span : reach.spans[d]) {
      length += std::max(0.0, std::min(span.end, here.end_of(d)[position]) -
                                  std::max(span.begin, here.begin_of(d)[position]));
    }
    volume *= length;
  }
  return volume;
}

double LowerBounds::hosts_along(const StateSpace& space, DimMask dims) const {
  int64_t hosts = 1;
  for (size_t m = 0; m < space.mesh_dims(); ++m) {
    if (!has(dims, m)) continue;
    hosts *= space.mesh_shape()[m] / space.coordinates_in_block(network_.host_block(), m);
  }
  return static_cast<double>(hosts);
}

}  // namespace shardway
