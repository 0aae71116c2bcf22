#include "plan/price/price.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace shardway {
namespace {

constexpr size_t kFewRanks = 64;  // up to here looking at pairs is quicker than at rings

double total_of(const std::vector<double>& volumes) {
  return std::accumulate(volumes.begin(), volumes.end(), 0.0);
}

ReadPattern pattern_of(const StateExchange& exchange) {
  const StateBoxes& before = exchange.senders.boxes(exchange.from);
  const StateBoxes& after = exchange.receivers.boxes(exchange.to);
  if (exchange.resolved == 0)
    return total_of(after.volumes) > total_of(before.volumes) ? ReadPattern::gather : ReadPattern::exchange;
  const bool is_in_place = &exchange.senders == &exchange.receivers && exchange.from == exchange.to;
  return is_in_place ? ReadPattern::combine_in_place : ReadPattern::combine;
}

}  // namespace

Femtoseconds to_femtoseconds(double us) {
  const double cost = us * kFemtosecondsPerUs;
  return cost >= static_cast<double>(kNever) ? kNever : static_cast<Femtoseconds>(std::llround(cost));
}

double us_for(double bytes, const Link& link) {
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  return bytes / (link.gib_per_s * kGib) * 1e6;
}

LoadTime time_of(const Loads& loads, size_t kind, const Network& network, int64_t item_bytes) {
  const auto item = static_cast<double>(item_bytes);
  LoadTime time;
  for (size_t level = 0; level < loads.levels; ++level) {
    const size_t slot = kind * loads.levels + level;
    const int32_t met = std::max(loads.sent_to[slot], loads.received_from[slot]);
    if (met == 0) continue;
    const Link& link = network.links()[level];
    time.latency_us += met * link.latency_us;
    time.transfer_us += us_for(std::max(loads.sent[slot], loads.received[slot]) * item, link);
  }
  time.local_us = loads.copied[kind] * item * network.copy_us_per_byte() +
                  loads.combined[kind] * item * network.reduce_us_per_byte();
  return time;
}

PriceList::PriceList(const Network& network, int64_t item_bytes, const TablePrices* table)
    : network_(network),
      item_bytes_(item_bytes),
      table_(table),
      has_rings_(network.ranks() > kFewRanks && !network.rings().empty()),
      overlaps_(network) {}

void PriceList::count(const StateExchange& exchange) {
  if (has_rings_) {
    count_rings(exchange, network_, overlaps_, loads_);
  } else {
    count_pairs(exchange, network_, loads_);
  }
}

Price PriceList::of_exchange(const StateExchange& exchange) {
  count(exchange);
  Price price = of_loads();
  if (table_ != nullptr && price.communicates) price_by_table(exchange, price);
  return price;
}

ReadLoad PriceList::load_of(const StateExchange& exchange) {
  count(exchange);
  return counted_load();
}

ReadLoad PriceList::counted_load() const {
  const auto item = static_cast<double>(item_bytes_);
  ReadLoad load;
  for (size_t kind = 0; kind < loads_.kinds(); ++kind) {
    double received = 0;
    int64_t peers = 0;
    for (size_t level = 0; level < loads_.levels; ++level) {
      const size_t slot = kind * loads_.levels + level;
      received += loads_.received[slot];
      peers += loads_.received_from[slot];
    }
    load.peers = std::max(load.peers, peers);
    load.add((received + loads_.copied[kind]) * item, loads_.copied[kind] * item,
             static_cast<double>(loads_.ranks[kind]) / static_cast<double>(network_.ranks()));
  }
  return load;
}

// Addends that are combined where they lie cost what an all_reduce does, which runs in their place
// (search/stages.h): there a rank combines a share of the ranks' addends.
void PriceList::price_by_table(const StateExchange& exchange, Price& price) const {
  const ReadPattern pattern = pattern_of(exchange);
  ReadLoad load = counted_load();
  if (pattern == ReadPattern::combine_in_place) {
    const double ranks = exchange.senders.ranks_along(exchange.resolved);
    load.most_bytes /= ranks;
    load.mean_bytes /= ranks;
    load.mean_kept_bytes /= ranks;
  }
  price_by_table(pattern, load, price);
}

void PriceList::price_by_table(ReadPattern pattern, const ReadLoad& load, Price& price) const {
  const TablePrice found = table_->of_step(pattern, load);
  price.cost = to_femtoseconds(found.us);
  price.latency_us = found.latency_us;
  price.is_extrapolated = found.is_extrapolated;
}

Price PriceList::of_loads() const {
  const size_t levels = loads_.levels;
  const auto item = static_cast<double>(item_bytes_);
  Price price;
  double worst_us = 0;
  for (size_t kind = 0; kind < loads_.kinds(); ++kind) {
    double sent = 0;
    int64_t peers = 0;
    for (size_t level = 0; level < levels; ++level) {
      const size_t slot = kind * levels + level;
      sent += loads_.sent[slot];
      peers += loads_.received_from[slot];
      if (loads_.sent_to[slot] + loads_.received_from[slot] > 0) price.communicates = true;
    }
    const LoadTime time = time_of(loads_, kind, network_, item_bytes_);
    if (time.us() > worst_us) {
      worst_us = time.us();
      price.latency_us = time.latency_us;
    }
    price.bytes = std::max(price.bytes, static_cast<int64_t>(sent * item));
    price.total_bytes += loads_.ranks[kind] * static_cast<int64_t>(sent * item);
    price.most_received_from = std::max(price.most_received_from, peers);
  }
  if (price.communicates) {
    worst_us += network_.base_us();
    price.latency_us += network_.base_us();
  }
  price.cost = to_femtoseconds(worst_us);
  return price;
}

double PriceList::staging_of(const StateExchange& exchange, size_t position) const {
  const double addends = exchange.senders.ranks_along(exchange.resolved);
  return addends == 1 ? 0 : (addends - 1) * exchange.receivers.boxes(exchange.to).volumes[position];
}

}  // namespace shardway
