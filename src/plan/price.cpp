#include "plan/price.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace shardway {
namespace {

constexpr size_t kFewRanks = 64;  // up to here looking at pairs is quicker than at rings
constexpr size_t kSampledRanks = 16;

}  // namespace

Femtoseconds to_femtoseconds(double us) {
  const double cost = us * kFemtosecondsPerUs;
  return cost >= static_cast<double>(kNever) ? kNever : static_cast<Femtoseconds>(std::llround(cost));
}

double us_for(double bytes, const Link& link) {
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  return bytes / (link.gib_per_s * kGib) * 1e6;
}

PriceList::PriceList(const Network& network, int64_t item_bytes)
    : network_(network), item_bytes_(item_bytes) {
  if (network.ranks() <= kFewRanks || network.rings().empty()) return;
  positions_.resize(network.ranks());
  std::iota(positions_.begin(), positions_.end(), 0);
  const size_t stride =
      network.ranks() / kSampledRanks + 1;  // odd for powers of two, so that all coordinates vary
  for (size_t p = 0; p < network.ranks(); p += stride) sample_.push_back(p);
  sample_.push_back(network.ranks() - 1);
}

Price PriceList::of_exchange(const Exchange& exchange) {
  if (positions_.empty()) {
    count_pairs(exchange, network_, loads_);
  } else {
    count_rings(exchange, network_, positions_, loads_);
  }
  return of_loads(network_.ranks());
}

Femtoseconds PriceList::sample_of_exchange(const Exchange& exchange) {
  count_rings(exchange, network_, sample_, loads_);
  return of_loads(sample_.size()).cost;
}

Price PriceList::of_loads(size_t ranks) const {
  const size_t levels = loads_.levels;
  const auto item = static_cast<double>(item_bytes_);
  Price price;
  double worst_us = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    double latency_us = 0;
    double transfer_us = 0;
    double sent = 0;
    int64_t peers = 0;
    for (size_t level = 0; level < levels; ++level) {
      const size_t slot = rank * levels + level;
      const int32_t met = std::max(loads_.sent_to[slot], loads_.received_from[slot]);
      if (met == 0) continue;
      const Link& link = network_.links()[level];
      latency_us += met * link.latency_us;
      transfer_us += us_for(std::max(loads_.sent[slot], loads_.received[slot]) * item, link);
      sent += loads_.sent[slot];
      peers += loads_.received_from[slot];
      price.communicates = true;
    }
    const double local_us = loads_.copied[rank] * item * network_.copy_us_per_byte() +
                            loads_.combined[rank] * item * network_.reduce_us_per_byte();
    if (latency_us + transfer_us + local_us > worst_us) {
      worst_us = latency_us + transfer_us + local_us;
      price.latency_us = latency_us;
    }
    price.bytes = std::max(price.bytes, static_cast<int64_t>(sent * item));
    price.total_bytes += static_cast<int64_t>(sent * item);
    price.most_received_from = std::max(price.most_received_from, peers);
  }
  if (price.communicates) {
    worst_us += network_.base_us();
    price.latency_us += network_.base_us();
  }
  price.cost = to_femtoseconds(worst_us);
  return price;
}

double PriceList::staging_of(const Exchange& exchange, size_t position) const {
  const double addends = exchange.senders.ranks_along(exchange.resolved);
  return addends == 1 ? 0 : (addends - 1) * exchange.receivers.bounds(exchange.to).volumes[position];
}

}  // namespace shardway
