// An all-reduce among hosts: every rank gets every sum, and between two hosts sums cross once.
#include "plan/hosts/hosts_all_reduce.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "plan/hosts/call_pieces.h"
#include "plan/hosts/two_levels.h"
#include "rank_simulator.h"

namespace shardway::testing {
namespace {

using Labels = std::vector<int64_t>;

ReducedRun floats(int64_t elements) { return {.elements = elements, .element_bytes = 4, .sum_bytes = 4}; }
ReducedRun wide(int64_t elements) {  // in which a few elements are much to carry
  return {.elements = elements, .element_bytes = 128 << 10, .sum_bytes = 128 << 10};
}
ReducedRun halves(int64_t elements) { return {.elements = elements, .element_bytes = 2, .sum_bytes = 4}; }

std::vector<AllReduceRoutes> routes_of_all(const ReducedRun& run, const HostMap& hosts) {
  std::vector<AllReduceRoutes> routes;
  for (int64_t rank = 0; rank < hosts.ranks(); ++rank) {
    routes.push_back(all_reduce_routes(run, rank, hosts));
    validate(routes.back().combination);
    validate(routes.back().collection);
  }
  return routes;
}

std::vector<Route> routes_in(const std::vector<AllReduceRoutes>& all, Route AllReduceRoutes::*route) {
  std::vector<Route> routes;
  for (const AllReduceRoutes& one : all) routes.push_back(one.*route);
  return routes;
}

int64_t addend(int64_t rank, int64_t i) { return 1000 * rank + i; }

// What a rank has after both routes; the first lands in the second's output.
std::vector<Dense> reduced(const ReducedRun& run, const HostMap& hosts) {
  const std::vector<AllReduceRoutes> all = routes_of_all(run, hosts);
  std::vector<Dense> inputs;
  for (int64_t rank = 0; rank < hosts.ranks(); ++rank) {
    inputs.push_back(Dense::filled({run.elements}, 0));
    for (int64_t i = 0; i < run.elements; ++i) inputs.back().at({i}) = addend(rank, i);
  }
  std::vector<Dense> shares;
  for (const Outcome& outcome : simulate(routes_in(all, &AllReduceRoutes::combination), inputs))
    shares.push_back(outcome.output);
  std::vector<Dense> results;
  for (const Outcome& outcome : simulate(routes_in(all, &AllReduceRoutes::collection), shares))
    results.push_back(outcome.output);
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const int64_t begin = all[rank].landing.offset[0];
    for (int64_t i = 0; i < all[rank].landing.extent[0]; ++i)
      results[rank].at({begin + i}) = shares[rank].at({i});
  }
  return results;
}

TEST(HostsAllReduce, EveryRankGetsEverySum) {
  for (const Labels& labels :
       {Labels{0, 1}, {0, 0, 1}, {0, 1, 0, 1}, {0, 0, 0, 1, 1}, {1, 0, 0, 0, 0}, {0, 0, 1, 1, 2, 2, 2}}) {
    const HostMap hosts(labels);
    for (const ReducedRun& run :
         {floats(0), floats(1), floats(25), wide(3), wide(8), wide(25), halves(25), halves(100'000)}) {
      Dense sum = Dense::filled({run.elements}, 0);
      for (int64_t rank = 0; rank < hosts.ranks(); ++rank) {
        for (int64_t i = 0; i < run.elements; ++i) sum.at({i}) += addend(rank, i);
      }
      for (const Dense& result : reduced(run, hosts)) EXPECT_EQ(result, sum);
    }
  }
}

// The example of the header.
TEST(HostsAllReduce, OfEightElementsBetweenTwoHosts) {
  const HostMap hosts({0, 0, 1, 1});
  const AllReduceRoutes routes = all_reduce_routes(wide(8), 0, hosts);
  EXPECT_EQ(routes.landing, (Box{.offset = {0}, .extent = {4}}));
  EXPECT_EQ(all_reduce_routes(wide(8), 2, hosts).landing, routes.landing);
  const Box first{.offset = {0}, .extent = {4}};
  const Box second{.offset = {4}, .extent = {4}};
  Moves of_all;
  for (int64_t peer = 0; peer < 4; ++peer) of_all.push_back({.peer = peer, .mine = first, .theirs = first});
  EXPECT_EQ(routes.combination.pulls, of_all);
  EXPECT_EQ(routes.collection.pulls, (Moves{{.peer = 1, .mine = second, .theirs = first}}));

  const Box whole = Box::whole({8});
  for (const int64_t rank : {0, 2}) EXPECT_EQ(all_reduce_routes(floats(8), rank, hosts).landing, whole);
  const AllReduceRoutes small = all_reduce_routes(floats(8), 1, hosts);
  EXPECT_TRUE(small.combination.pulls.empty());
  EXPECT_EQ(small.collection.pulls, (Moves{{.peer = 0, .mine = whole, .theirs = whole}}));
}

// What the plans of all ranks move in one of both routes.
struct Moved {
  int64_t messages = 0;
  int64_t crossed = 0;   // elements between hosts
  int64_t combined = 0;  // elements that are read to make the sums of hosts
};

Moved moved(const ReducedRun& run, const HostMap& hosts, Route AllReduceRoutes::*route) {
  const std::vector<Route> routes = routes_in(routes_of_all(run, hosts), route);
  Moved moved;
  for (int64_t host = 0; host < hosts.hosts(); ++host) {
    std::vector<ToldRoute> told;
    for (const int64_t rank : hosts.ranks_of(host))
      told.push_back({.route = routes[static_cast<size_t>(rank)],
                      .has_contiguous_input = true,
                      .has_contiguous_output = true});
    for (const TwoLevels& plan : two_levels_of_host(hosts, host, told, run.element_bytes)) {
      for (const Moves* pushes : {&plan.copies.pushes, &plan.crossing.pushes}) {
        moved.messages += static_cast<int64_t>(pushes->size());
        for (const Move& push : *pushes) moved.crossed += push.mine.volume();
      }
      for (const Move& pull : plan.sums.pulls) moved.combined += pull.mine.volume();
    }
  }
  return moved;
}

constexpr int64_t kMany = 1 << 20;
const Labels kTwoOfFour = {0, 0, 0, 0, 1, 1, 1, 1};

TEST(HostsAllReduce, BetweenTwoHostsSumsCrossOnceAndNothingElse) {
  const HostMap hosts(kTwoOfFour);
  const Moved first = moved(floats(kMany), hosts, &AllReduceRoutes::combination);
  EXPECT_EQ(first.messages, 8);  // one of each rank
  EXPECT_EQ(first.crossed, 2 * kMany);
  EXPECT_EQ(moved(floats(kMany), hosts, &AllReduceRoutes::collection).messages, 0);
}

// What a rank sends is also its own host's part of its result.
TEST(HostsAllReduce, ASumThatARankSendsAndKeepsIsMadeOnce) {
  const Moved first = moved(floats(kMany), HostMap(kTwoOfFour), &AllReduceRoutes::combination);
  EXPECT_EQ(first.combined, 8 * kMany);
}

// Sums of f16 are twice as wide: in two rounds the results cross as f16.
TEST(HostsAllReduce, WideSumsOfLongTensorsCrossInSharesOnly) {
  const HostMap hosts(kTwoOfFour);
  EXPECT_TRUE(exchanges_sums_once(halves(1 << 10), hosts));
  EXPECT_FALSE(exchanges_sums_once(halves(kMany), hosts));
  const Moved first = moved(halves(kMany), hosts, &AllReduceRoutes::combination);
  const Moved second = moved(halves(kMany), hosts, &AllReduceRoutes::collection);
  EXPECT_EQ(first.crossed, kMany);
  EXPECT_EQ(second.crossed, kMany);
}

TEST(HostsAllReduce, LongOnesRunInPiecesOfWhichManyHostsGetFewer) {
  constexpr int64_t k64MiB = 16 << 20;  // of floats
  const auto pieces = [](int64_t elements, int64_t hosts) {
    Labels labels(static_cast<size_t>(hosts));
    std::iota(labels.begin(), labels.end(), 0);
    return call_pieces(elements, 4, HostMap(labels));
  };
  EXPECT_EQ(pieces(5, 2), (std::vector<int64_t>{5}));
  EXPECT_EQ(pieces(kMany + 1, 2), (std::vector<int64_t>{kMany / 2 + 1, kMany / 2}));
  EXPECT_EQ(pieces(k64MiB, 2).size(), 8U);
  EXPECT_EQ(pieces(k64MiB, 128).size(), 2U);
  EXPECT_EQ(pieces(k64MiB, 300).size(), 1U);
}

TEST(HostsAllReduce, AmongMoreHostsEachCarrierHasAShareOfItsOwn) {
  const HostMap hosts({0, 0, 1, 1, 2, 2});
  EXPECT_FALSE(exchanges_sums_once(floats(kMany), hosts));
  const AllReduceRoutes routes = all_reduce_routes(wide(24), 3, hosts);
  EXPECT_EQ(routes.landing, (Box{.offset = {12}, .extent = {4}}));
  EXPECT_EQ(routes.collection.pulls.size(), 5U);
  EXPECT_EQ(all_reduce_routes(floats(6), 2, hosts).landing, (Box{.offset = {2}, .extent = {2}}));
  EXPECT_EQ(all_reduce_routes(floats(6), 3, hosts).collection.pulls.size(), 3U);
}

// A rank's share is small there, but each host still makes sums of everything.
TEST(HostsAllReduce, AmongManyHostsEveryRankCombines) {
  Labels labels(128);
  for (size_t rank = 0; rank < labels.size(); ++rank) labels[rank] = static_cast<int64_t>(rank / 2);
  EXPECT_EQ(all_reduce_routes(wide(128), 1, HostMap(labels)).landing, (Box{.offset = {1}, .extent = {1}}));
}

// 256 KiB, of which one rank a host sends everything.
TEST(HostsAllReduce, SmallOnesCrossInOneMessagePerPairOfHosts) {
  constexpr int64_t kFew = 64 << 10;
  const Moved between_two = moved(floats(kFew), HostMap(kTwoOfFour), &AllReduceRoutes::combination);
  EXPECT_EQ(between_two.messages, 2);
  EXPECT_EQ(between_two.crossed, 2 * kFew);
  const HostMap four({0, 0, 1, 1, 2, 2, 3, 3});
  for (const auto route : {&AllReduceRoutes::combination, &AllReduceRoutes::collection}) {
    EXPECT_EQ(moved(floats(kFew), four, route).messages, 12);
    EXPECT_EQ(moved(floats(kFew), four, route).crossed, 3 * kFew);
  }
}

}  // namespace
}  // namespace shardway::testing
