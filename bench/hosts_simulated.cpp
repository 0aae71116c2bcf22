// Collectives among hundreds of hosts, by the plans that would run: a line of JSON per op, number of hosts
// and way, for bench/hosts_simulated.py.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "plan/hosts/call_pieces.h"
#include "plan/hosts/hosts_all_reduce.h"
#include "plan/hosts/spread_broadcast.h"
#include "plan/hosts/two_level_load.h"
#include "shardway/route.h"

namespace {

using namespace shardway;

constexpr DType kDType = DType::f32;

using RouteOfRank = std::function<Route(int64_t)>;

// A collective as the routes that run one after another.
struct Collective {
  std::string op;
  int64_t bytes;                    // of a rank in a gather or scatter, else of the tensor
  std::vector<RouteOfRank> flat;    // in one level
  std::vector<RouteOfRank> routes;  // in two
  std::vector<int64_t> hosts;       // one of each kind: the others have the same to do
};

// The busiest of the ranks and the hosts that were looked at.
struct BusiestLoad {
  int64_t bytes_per_host = 0;  // across, the larger of both ways
  int64_t bytes_per_rank = 0;  // read inside the host
  int64_t messages = 0;        // of a rank, the larger of both ways; a flat exchange has them inside too
  int64_t peers = 0;           // that a rank reads from inside
  double plan_us = 0;          // to make the plan of one rank

  void add(const BusiestLoad& next) {
    bytes_per_host += next.bytes_per_host;
    bytes_per_rank += next.bytes_per_rank;
    messages += next.messages;
    peers += next.peers;
    plan_us += next.plan_us;
  }
};

BusiestLoad busiest(const std::vector<TwoLevelLoad>& of_host, const BusiestLoad& before) {
  BusiestLoad loads = before;
  int64_t out = 0;
  int64_t in = 0;
  for (const TwoLevelLoad& load : of_host) {
    out += load.sent_across;
    in += load.received_across;
    loads.bytes_per_rank = std::max(loads.bytes_per_rank, load.received_inside);
    loads.messages = std::max({loads.messages, load.messages_sent, load.messages_received});
    loads.peers = std::max(loads.peers, load.peers_read);
  }
  loads.bytes_per_host = std::max({loads.bytes_per_host, out, in});
  return loads;
}

BusiestLoad in_two_levels(const HostMap& hosts, const RouteOfRank& route,
                          const std::vector<int64_t>& looked_at) {
  BusiestLoad loads;
  for (const int64_t host : looked_at) {
    std::vector<ToldRoute> told;
    for (const int64_t rank : hosts.ranks_of(host))
      told.push_back({.route = route(rank), .has_contiguous_input = true, .has_contiguous_output = true});
    const auto begin = std::chrono::steady_clock::now();
    (void)two_levels_of(hosts, hosts.ranks_of(host).front(), told, item_bytes(kDType));
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    std::vector<TwoLevelLoad> of_host;
    for (const TwoLevels& plan : two_levels_of_host(hosts, host, told, item_bytes(kDType)))
      of_host.push_back(load_of(plan, kDType));
    loads = busiest(of_host, loads);
    loads.plan_us = std::max(loads.plan_us, took.count());
  }
  return loads;
}

// Every rank sends to every rank itself.
TwoLevelLoad flat_load(const HostMap& hosts, const Route& route) {
  TwoLevelLoad load;
  const auto add = [&](const Moves& moves, int64_t& inside, int64_t& across, int64_t& messages) {
    for (const Move& move : moves) {
      const int64_t bytes = move.mine.volume() * item_bytes(kDType);
      if (move.peer == route.rank || bytes == 0) continue;
      const bool is_here = hosts.host_of(move.peer) == hosts.host_of(route.rank);
      (is_here ? inside : across) += bytes;
      ++messages;
    }
  };
  add(route.pushes, load.sent_inside, load.sent_across, load.messages_sent);
  add(route.pulls, load.received_inside, load.received_across, load.messages_received);
  return load;
}

BusiestLoad in_one_level(const HostMap& hosts, const RouteOfRank& route,
                         const std::vector<int64_t>& looked_at) {
  BusiestLoad loads;
  for (const int64_t host : looked_at) {
    std::vector<TwoLevelLoad> of_host;
    for (const int64_t rank : hosts.ranks_of(host)) of_host.push_back(flat_load(hosts, route(rank)));
    loads = busiest(of_host, loads);
  }
  return loads;
}

std::vector<Collective> collectives(const HostMap& hosts, int64_t part_bytes, int64_t whole_bytes) {
  const int64_t ranks = hosts.ranks();
  const int64_t part = part_bytes / item_bytes(kDType);
  const int64_t whole = whole_bytes / item_bytes(kDType);
  const Split parts{.shape = {0}, .dim = 0, .sizes = std::vector<int64_t>(static_cast<size_t>(ranks), part)};
  const Split shares{.shape = {0}, .dim = 0, .sizes = chunk_sizes(whole, ranks)};
  const auto gather = [](const Split& split) {
    return [split](int64_t rank) { return all_gather_route(split, rank); };
  };
  const auto scatter = [](const Split& split) {
    return [split](int64_t rank) { return reduce_scatter_route(split, rank); };
  };
  const RouteOfRank broadcast = [=](int64_t rank) { return broadcast_route({whole}, rank, ranks, 0); };
  const std::vector<RouteOfRank> gather_parts = {gather(parts)};
  const std::vector<RouteOfRank> scatter_parts = {scatter(parts)};
  const std::vector<RouteOfRank> all_reduce = {scatter(shares), gather(shares)};
  std::vector<RouteOfRank> all_reduce_in_pieces;
  std::vector<RouteOfRank> broadcast_in_pieces;
  for (const int64_t piece : call_pieces(whole, item_bytes(kDType), hosts)) {
    const ReducedRun run{
        .elements = piece, .element_bytes = item_bytes(kDType), .sum_bytes = item_bytes(kDType)};
    all_reduce_in_pieces.emplace_back(
        [=](int64_t rank) { return all_reduce_routes(run, rank, hosts).combination; });
    all_reduce_in_pieces.emplace_back(
        [=](int64_t rank) { return all_reduce_routes(run, rank, hosts).collection; });
    broadcast_in_pieces.emplace_back(
        [=](int64_t rank) { return spread_broadcast(piece, item_bytes(kDType), 0, rank, hosts).shares; });
    broadcast_in_pieces.emplace_back(
        [=](int64_t rank) { return spread_broadcast(piece, item_bytes(kDType), 0, rank, hosts).collection; });
  }
  return {{"all_gather_v", part_bytes, gather_parts, gather_parts, {0}},
          {"reduce_scatter_v", part_bytes, scatter_parts, scatter_parts, {0}},
          {"all_reduce", whole_bytes, all_reduce, all_reduce_in_pieces, {0}},
          {"broadcast", whole_bytes, {broadcast}, broadcast_in_pieces, {0, 1}}};
}

void print(const Collective& collective, int64_t hosts, const char* way, const BusiestLoad& loads) {
  std::printf(
      "{\"op\": \"%s\", \"hosts\": %lld, \"way\": \"%s\", \"bytes\": %lld, \"bytes_per_host\": %lld, "
      "\"bytes_per_rank\": %lld, \"messages\": %lld, \"peers\": %lld, \"plan_us\": %.0f}\n",
      collective.op.c_str(), static_cast<long long>(hosts), way, static_cast<long long>(collective.bytes),
      static_cast<long long>(loads.bytes_per_host), static_cast<long long>(loads.bytes_per_rank),
      static_cast<long long>(loads.messages), static_cast<long long>(loads.peers), loads.plan_us);
  std::fflush(stdout);
}

struct Sizes {
  int64_t ranks_per_host;
  int64_t part_bytes;
  int64_t whole_bytes;
};

void simulate(int64_t hosts, const Sizes& sizes) {
  std::vector<int64_t> labels(static_cast<size_t>(hosts * sizes.ranks_per_host));
  for (size_t rank = 0; rank < labels.size(); ++rank)
    labels[rank] = static_cast<int64_t>(rank) / sizes.ranks_per_host;
  const HostMap map(labels);
  for (const Collective& collective : collectives(map, sizes.part_bytes, sizes.whole_bytes)) {
    BusiestLoad two;
    BusiestLoad one;
    for (const auto& route : collective.routes) two.add(in_two_levels(map, route, collective.hosts));
    for (const auto& route : collective.flat) one.add(in_one_level(map, route, collective.hosts));
    print(collective, hosts, "two levels", two);
    print(collective, hosts, "flat", one);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: hosts_simulated RANKS_PER_HOST PART_BYTES WHOLE_BYTES HOSTS...\n");
    return 2;
  }
  const Sizes sizes{.ranks_per_host = std::atoll(argv[1]),
                    .part_bytes = std::atoll(argv[2]),
                    .whole_bytes = std::atoll(argv[3])};
  for (int i = 4; i < argc; ++i) simulate(std::atoll(argv[i]), sizes);
  return 0;
}
