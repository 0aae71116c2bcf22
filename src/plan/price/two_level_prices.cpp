#include "plan/price/two_level_prices.h"

#include <algorithm>
#include <utility>

#include "plan/geometry/all_reduce_shares.h"
#include "plan/geometry/exchange_rules.h"
#include "plan/hosts/two_level_load.h"

namespace shardway {
namespace {

using ToldRoutes = std::vector<ToldRoute>;  // by rank

// Whether a part of a contiguous tensor is contiguous.
bool is_contiguous(const Box& part, const std::vector<int64_t>& shape) {
  size_t d = 0;
  while (d < shape.size() && part.extent[d] == 1) ++d;
  for (++d; d < shape.size(); ++d) {
    if (part.extent[d] != shape[d]) return false;
  }
  return true;
}

ToldRoute told(Route route) {
  return {.route = std::move(route), .has_contiguous_input = true, .has_contiguous_output = true};
}

// The routes that run one after another.
std::vector<ToldRoutes> routes_of(const Layout& from, const Layout& to, bool is_all_reduce, int64_t ranks) {
  if (!is_all_reduce || from.ndim() == 0) {
    std::vector<ToldRoutes> routes(1);
    for (int64_t rank = 0; rank < ranks; ++rank)
      routes[0].push_back(told(redistribution_route(from, to, rank)));
    return routes;
  }
  const std::vector<int64_t> dims = exchange_rules_between(from, to).resolved;
  std::vector<ToldRoutes> routes(2);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    AllReduceRoutes both = all_reduce_routes(from, dims, rank);
    const bool is_in_one_run = is_contiguous(both.landing, both.collection.output_shape);
    routes[0].push_back(told(std::move(both.combination)));
    routes[0].back().has_contiguous_output = is_in_one_run;
    routes[1].push_back(told(std::move(both.collection)));
    routes[1].back().has_contiguous_input = is_in_one_run;
  }
  return routes;
}

int64_t others_pulled_from(const Route& route) {
  int64_t peers = 0;
  int64_t last = route.rank;
  for (const Move& pull : route.pulls) {
    if (pull.peer == route.rank || pull.mine.volume() == 0) continue;
    if (pull.peer != std::exchange(last, pull.peer)) ++peers;
  }
  return peers;
}

double us_by(double bytes, double gib_per_s) {
  return gib_per_s > 0 ? us_for(bytes, {.latency_us = 0, .gib_per_s = gib_per_s}) : 0;
}

// What the ranks of a host have to do on one route.
class HostWork {
 public:
  HostWork(const Topology& topology, std::vector<TwoLevelLoad> loads)
      : topology_(topology), loads_(std::move(loads)) {
    for (const TwoLevelLoad& load : loads_) {
      sent_ += load.sent_across;
      received_ += load.received_across;
    }
  }

  int64_t sent_across() const { return sent_; }

  void add_to(TwoLevelRank& rank, size_t place) const {
    const TwoLevelLoad& load = loads_[place];
    const double latency_us = static_cast<double>(load.peers_read) * topology_.within_host.latency_us +
                              static_cast<double>(std::max(load.messages_sent, load.messages_received)) *
                                  topology_.between_hosts.latency_us;
    rank.sent_bytes += load.sent();
    rank.received_bytes += load.received();
    rank.staging_bytes = std::max(rank.staging_bytes, load.staging);
    rank.latency_us += latency_us;
    rank.us += latency_us + us_for(static_cast<double>(load.received_inside), topology_.within_host) +
               us_for(static_cast<double>(std::max(sent_, received_)), topology_.between_hosts) +
               us_by(static_cast<double>(load.copied), topology_.copy_gib_per_s) +
               us_by(static_cast<double>(load.combined), topology_.reduce_gib_per_s);
  }

 private:
  const Topology& topology_;
  std::vector<TwoLevelLoad> loads_;
  int64_t sent_ = 0;
  int64_t received_ = 0;
};

Price price_of(const std::vector<TwoLevelRank>& ranks, double base_us) {
  Price price;
  double worst_us = 0;
  for (const TwoLevelRank& rank : ranks) {
    price.bytes = std::max(price.bytes, rank.sent_bytes);
    price.total_bytes += rank.sent_bytes;
    if (rank.us <= worst_us) continue;
    worst_us = rank.us;
    price.latency_us = rank.latency_us;
  }
  price.communicates = price.total_bytes > 0;
  if (price.communicates) {
    worst_us += base_us;
    price.latency_us += base_us;
  }
  price.cost = to_femtoseconds(worst_us);
  return price;
}

}  // namespace

std::optional<TwoLevelPrices> TwoLevelPrices::between(const Topology& topology, const Mesh& from,
                                                      const Mesh& to) {
  if (!topology.two_levels) return std::nullopt;
  const int64_t first = topology.host_of(from.ranks().front());
  bool has_several = false;
  int64_t largest = 0;
  for (const Mesh* mesh : {&from, &to}) {
    for (const int64_t rank : mesh->ranks()) {
      has_several = has_several || topology.host_of(rank) != first;
      largest = std::max(largest, rank);
    }
  }
  if (!has_several) return std::nullopt;
  std::vector<int64_t> labels;
  for (int64_t rank = 0; rank <= largest; ++rank) labels.push_back(topology.host_of(rank));
  return TwoLevelPrices(topology, HostMap(labels));
}

TwoLevelStep TwoLevelPrices::of(const Layout& from, const Layout& to, bool is_all_reduce) const {
  TwoLevelStep step{.ranks = std::vector<TwoLevelRank>(static_cast<size_t>(hosts_.ranks()))};
  int64_t crossing_bytes = 0;
  int64_t most_received_from = 0;
  for (ToldRoutes& routes : routes_of(from, to, is_all_reduce, hosts_.ranks())) {
    for (int64_t host = 0; host < hosts_.hosts(); ++host) {
      ToldRoutes of_host;
      for (const int64_t rank : hosts_.ranks_of(host)) {
        of_host.push_back(std::move(routes[static_cast<size_t>(rank)]));
        most_received_from = std::max(most_received_from, others_pulled_from(of_host.back().route));
      }
      std::vector<TwoLevelLoad> loads;
      for (const TwoLevels& plan : two_levels_of_host(hosts_, host, of_host, item_bytes(from.dtype())))
        loads.push_back(load_of(plan, from.dtype()));
      const HostWork work(topology_, std::move(loads));
      crossing_bytes += work.sent_across();
      for (size_t place = 0; place < of_host.size(); ++place)
        work.add_to(step.ranks[static_cast<size_t>(hosts_.ranks_of(host)[place])], place);
    }
  }
  step.price = price_of(step.ranks, topology_.base_us);
  step.price.crossing_bytes = crossing_bytes;
  step.price.most_received_from = most_received_from;
  return step;
}

// A rank that receives anything pays one latency. If hosts lie in blocks and their border is no quicker than
// their memory, it is bounded by itself: the mean rank of a host pays for all bytes of the host.
Topology at_best(const Topology& two_levels, const Mesh& from, const Mesh& to) {
  const Link& inside = two_levels.within_host;
  const Link& border = two_levels.between_hosts;
  Topology best{.base_us = two_levels.base_us + std::min(inside.latency_us, border.latency_us),
                .within_host = {.latency_us = 0, .gib_per_s = std::max(inside.gib_per_s, border.gib_per_s)}};
  best.between_hosts = best.within_host;
  const int64_t ranks = Network(two_levels, from, to).host_block();
  if (ranks == 0 || border.gib_per_s > inside.gib_per_s) return best;
  best.between_hosts.gib_per_s = border.gib_per_s / static_cast<double>(ranks);
  best.ranks_per_host = two_levels.ranks_per_host;
  best.host_of_rank = two_levels.host_of_rank;
  return best;
}

}  // namespace shardway
