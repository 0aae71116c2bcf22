#include "plan/price/table_prices.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

namespace shardway {
namespace {

double what_counts(const PriceCurve& curve, double most, double mean) {
  return curve.busiest_share * most + (1 - curve.busiest_share) * mean;
}

double us_at(const PriceCurve& curve, double bytes) {
  const auto& points = curve.points;
  if (bytes <= points.front().bytes) return points.front().us;
  if (bytes >= points.back().bytes) return points.back().us * bytes / points.back().bytes;
  const auto above =
      std::upper_bound(points.begin(), points.end(), bytes,
                       [](double wanted, const PriceCurve::Point& point) { return wanted < point.bytes; });
  const auto below = above - 1;
  const double way = (bytes - below->bytes) / (above->bytes - below->bytes);
  return below->us + way * (above->us - below->us);
}

TablePrice price_at(const PriceCurve& curve, double bytes) {
  const double us = us_at(curve, bytes);
  return {.us = us,
          .latency_us = std::min(curve.points.front().us, us),
          .is_extrapolated = bytes > curve.points.back().bytes};
}

TablePrice with_more(TablePrice price, double us) {
  price.us += us;
  price.latency_us += us;
  return price;
}

TablePrice mixed(const TablePrice& a, const TablePrice& b, double share_of_b) {
  const auto mix = [&](double x, double y) { return x + share_of_b * (y - x); };
  return {.us = mix(a.us, b.us),
          .latency_us = mix(a.latency_us, b.latency_us),
          .is_extrapolated = a.is_extrapolated || b.is_extrapolated};
}

const char* op_of(ReadPattern pattern) {
  switch (pattern) {
    case ReadPattern::gather:
      return "all_gather";
    case ReadPattern::combine:
      return "reduce_scatter";
    case ReadPattern::combine_in_place:
      return "all_reduce";
    default:
      return "all_to_all";
  }
}

// In an all_reduce a rank receives up to twice what it combines.
double received_by_read(const std::string& op) { return op == op_of(ReadPattern::combine_in_place) ? 2 : 1; }

}  // namespace

std::optional<TablePrices> TablePrices::between(const Topology& topology, const Mesh& from, const Mesh& to) {
  if (!topology.tables || topology.tables->empty() || !topology.dims.empty()) return std::nullopt;
  std::set<int64_t> ranks(from.ranks().begin(), from.ranks().end());
  ranks.insert(to.ranks().begin(), to.ranks().end());
  const int64_t host = topology.host_of(*ranks.begin());
  if (!std::all_of(ranks.begin(), ranks.end(), [&](int64_t rank) { return topology.host_of(rank) == host; }))
    return std::nullopt;
  const auto count = static_cast<int64_t>(ranks.size());
  const auto distance = [&](const PriceTable& table) { return std::abs(table.ranks - count); };
  const auto nearest =
      std::min_element(topology.tables->begin(), topology.tables->end(),
                       [&](const PriceTable& a, const PriceTable& b) { return distance(a) < distance(b); });
  return TablePrices(*nearest, count);
}

TablePrice TablePrices::of_step(ReadPattern pattern, const ReadLoad& load) const {
  if (pattern == ReadPattern::exchange) return of_exchange(load, table_.step_us);
  return with_more(of(pattern, load), table_.step_us);
}

TablePrice TablePrices::of(ReadPattern pattern, const ReadLoad& load) const {
  if (pattern == ReadPattern::exchange) return of_exchange(load, 0);
  const PriceCurve& curve = table_.curves.at(op_of(pattern));
  return price_at(curve, what_counts(curve, load.most_bytes, load.mean_bytes));
}

TablePrice TablePrices::of_exchange(const ReadLoad& load, double step_us) const {
  const PriceCurve& among_all = table_.curves.at("all_to_all");
  const double bytes = what_counts(among_all, load.most_bytes, load.mean_bytes);
  const auto ranks = static_cast<double>(table_.ranks);
  const double kept_part = load.mean_bytes == 0 ? 0 : load.mean_kept_bytes / load.mean_bytes;
  // The one peer of two ranks is all peers: there, what is kept tells a permute from an all_to_all.
  const double all_peers = std::clamp(
      table_.ranks == 2 ? ranks * kept_part : (static_cast<double>(load.peers) - 1) / (ranks - 2), 0.0, 1.0);
  const TablePrice moved = with_more(
      mixed(price_at(table_.curves.at("permute"), bytes), price_at(among_all, bytes), all_peers), step_us);
  const auto kept = table_.curves.find("exchange");
  const double kept_when_moved = all_peers / ranks;
  if (kept == table_.curves.end() || load.mean_bytes == 0 || table_.kept_share <= kept_when_moved)
    return moved;
  const double share = (kept_part - kept_when_moved) / (table_.kept_share - kept_when_moved);
  return mixed(moved, price_at(kept->second, bytes), std::clamp(share, 0.0, 1.0));
}

// A straight line from the base that lies below every point lies below every curve. What one rank reads
// counts by `busiest_share`, and by its part of the mean.
Topology TablePrices::at_best(const Topology& topology) const {
  constexpr double kBasePart = 0.9;  // so that bytes cost something from the first point on
  double least_us = INFINITY;
  double least_share = 1;
  for (const auto& [op, curve] : table_.curves) {
    least_share = std::min(least_share, curve.busiest_share);
    for (const PriceCurve::Point& point : curve.points) least_us = std::min(least_us, point.us);
  }
  const double counted = least_share + (1 - least_share) / static_cast<double>(ranks_);
  Topology best = topology;
  best.base_us = kBasePart * least_us;
  double us_per_byte = INFINITY;
  for (const auto& [op, curve] : table_.curves) {
    for (const PriceCurve::Point& point : curve.points)
      us_per_byte =
          std::min(us_per_byte, (point.us - best.base_us) * counted / (point.bytes * received_by_read(op)));
  }
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  best.within_host = {.latency_us = 0, .gib_per_s = 1e6 / (us_per_byte * kGib)};
  best.tables = nullptr;
  return best;
}

}  // namespace shardway
