// A step in two levels costs what its plans move.
#include "plan/price/two_level_prices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "moves.h"
#include "plan/geometry/exchange_rules.h"
#include "plan/hosts/two_levels.h"
#include "plan/search/stages.h"
#include "plan_oracle.h"
#include "shardway/plan.h"

namespace shardway::testing {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

// Hosts of any sizes, whose ranks follow one another or are strewn about.
Topology any_hosts(Dice& dice, int64_t ranks) {
  Topology topology = any_topology(dice, ranks);
  topology.dims.clear();
  topology.two_levels = true;
  topology.ranks_per_host = dice.between(int64_t{1}, int64_t{4});
  return topology;
}

// Bytes that ranks send when they run a route of each in two levels, every rank on its own.
struct Sent {
  std::vector<int64_t> by_rank;
  int64_t between_hosts = 0;
};

void run(const HostMap& hosts, const std::vector<Route>& routes, const Layout& layout, Sent& sent) {
  const bool is_narrow = layout.dtype() == DType::f16 || layout.dtype() == DType::bf16;
  const int64_t item = item_bytes(layout.dtype());
  const int64_t sum_item = is_narrow ? 4 : item;
  for (int64_t rank = 0; rank < hosts.ranks(); ++rank) {
    std::vector<ToldRoute> told;
    for (const int64_t mate : hosts.ranks_of(hosts.host_of(rank)))
      told.push_back({.route = routes[static_cast<size_t>(mate)],
                      .has_contiguous_input = true,
                      .has_contiguous_output = true});
    const TwoLevels plan = two_levels_of(hosts, rank, told, item);
    const int64_t place = hosts.place_of(rank);
    const int64_t across = elements_to_others(plan.copies.pushes, rank) * item +
                           elements_to_others(plan.crossing.pushes, rank) * sum_item;
    sent.between_hosts += across;
    sent.by_rank[static_cast<size_t>(rank)] += across + elements_to_others(plan.home.pushes, place) * item +
                                               elements_to_others(plan.handover.pushes, place) * item +
                                               elements_to_others(plan.sums.pushes, place) * sum_item;
  }
}

TEST(TwoLevelPrices, BytesAreThoseOfThePlansThatRun) {
  Dice dice;
  for (int64_t done = 0; done < tries(60);) {
    const LayoutPair pair = any_pair(dice);
    SCOPED_TRACE(text_of(pair));
    const Topology topology = any_hosts(dice, 40);
    const auto best = plan(pair.from, pair.to, {.topology = topology});
    if (!best->in_two_levels) continue;
    ++done;
    const std::vector<int64_t>& senders = pair.from.mesh().ranks();
    const std::vector<int64_t>& receivers = pair.to.mesh().ranks();
    const int64_t ranks = std::max(*std::max_element(senders.begin(), senders.end()),
                                   *std::max_element(receivers.begin(), receivers.end())) +
                          1;
    std::vector<int64_t> numbers(static_cast<size_t>(ranks));
    std::iota(numbers.begin(), numbers.end(), 0);
    const GroupRanks group(numbers);
    std::vector<int64_t> labels;
    for (const int64_t rank : numbers) labels.push_back(topology.host_of(rank));
    const HostMap hosts(labels);
    std::vector<std::vector<Stage>> stages;
    for (const int64_t rank : numbers) stages.push_back(stages_of(*best, group, rank, 0));
    int64_t crossing_bytes = 0;
    for (size_t s = 0; s < best->steps.size(); ++s) {
      const Step& step = best->steps[s];
      Sent sent{.by_rank = std::vector<int64_t>(numbers.size())};
      std::vector<Route> first;
      std::vector<Route> second;
      for (const auto& of_rank : stages) {
        first.push_back(of_rank[s].route);
        if (of_rank[s].collection) second.push_back(*of_rank[s].collection);
      }
      run(hosts, first, step.from, sent);
      if (!second.empty()) run(hosts, second, step.from, sent);
      EXPECT_EQ(step.bytes, *std::max_element(sent.by_rank.begin(), sent.by_rank.end()));
      EXPECT_EQ(step.total_bytes, std::accumulate(sent.by_rank.begin(), sent.by_rank.end(), int64_t{0}));
      EXPECT_EQ(step.crossing_bytes, sent.between_hosts);
      crossing_bytes += step.crossing_bytes;
    }
    EXPECT_EQ(best->crossing_bytes, crossing_bytes);
    if (HasFailure()) return;
  }
}

// Of one step, by an exchange or an all_reduce.
double step_us(const TwoLevelPrices& prices, const Layout& from, const Layout& to) {
  if (makes_addends(from, to)) return kImpossible;
  std::vector<Placement> combined = from.placements();
  for (size_t m = 0; m < combined.size(); ++m) {
    if (combined[m].is_partial() && to.placements()[m].is_replicate()) combined[m] = replicate();
  }
  double us = in_us(prices.of(from, to, false).price.cost);
  if (from.with(combined, from.order()) == to) us = std::min(us, in_us(prices.of(from, to, true).price.cost));
  return us;
}

// Every layout, every pair of them priced, every path.
double cheapest_of_all(const LayoutPair& pair, const TwoLevelPrices& prices) {
  const std::vector<Layout> layouts = every_layout({pair.from, pair.to}, pair.from.placements());
  const auto index_of = [&](const Layout& layout) {
    return static_cast<size_t>(std::find(layouts.begin(), layouts.end(), layout) - layouts.begin());
  };
  std::vector<std::vector<double>> us(layouts.size(), std::vector<double>(layouts.size(), kImpossible));
  for (size_t a = 0; a < layouts.size(); ++a) {
    for (size_t b = 0; b < layouts.size(); ++b) {
      us[a][b] = a == b ? 0 : step_us(prices, layouts[a], layouts[b]);
    }
  }
  for (size_t k = 0; k < us.size(); ++k) {
    for (size_t a = 0; a < us.size(); ++a) {
      for (size_t b = 0; b < us.size(); ++b) us[a][b] = std::min(us[a][b], us[a][k] + us[k][b]);
    }
  }
  return us.at(index_of(pair.from)).at(index_of(pair.to));
}

TEST(TwoLevelPrices, ThePlanIsAsCheapAsTheCheapestOfAllPaths) {
  Dice dice;
  for (int64_t i = 0; i < tries(150); ++i) {
    const Mesh mesh = dice.one_in(2) ? Mesh({2, 2}) : Mesh({2, 3});
    const std::vector<int64_t> shape{dice.between(int64_t{1}, int64_t{3000}),
                                     dice.between(int64_t{1}, int64_t{9})};
    const LayoutPair pair = any_pair_on(dice, shape, mesh);
    const Topology topology = any_hosts(dice, 40);
    const auto prices = TwoLevelPrices::between(topology, mesh, mesh);
    if (!prices) continue;
    const double expected = cheapest_of_all(pair, *prices);
    const double cost = redistribute_cost(pair.from, pair.to, {.topology = topology});
    ASSERT_NEAR(cost, expected, std::max(1e-9 * expected, 1e-8)) << text_of(pair) << "\n"
                                                                 << to_json(topology);
  }
}

const Topology kTwoHosts{.base_us = 10,
                         .within_host = {.latency_us = 1, .gib_per_s = 8},
                         .between_hosts = {.latency_us = 100, .gib_per_s = 2},
                         .ranks_per_host = 2,
                         .two_levels = true};

// Every rank has 8 bytes. It sends them to one rank of the other host, reads its mate's, and reads from its
// mate what that received.
TEST(TwoLevelPrices, AGatherPaysForItsMessagesItsHostsBytesAndWhatItReads) {
  const Layout rows({8}, DType::f32, Mesh({4}), {shard(0)});
  const auto best = plan(rows, rows.with({replicate()}), {.topology = kTwoHosts});
  ASSERT_EQ(best->steps.size(), 1U);
  const Step& step = best->steps.front();
  EXPECT_TRUE(best->in_two_levels);
  EXPECT_EQ(step.kind, StepKind::all_gather);
  EXPECT_EQ(step.crossing_bytes, 32);
  EXPECT_EQ(step.bytes, 24);
  EXPECT_EQ(step.total_bytes, 96);
  EXPECT_DOUBLE_EQ(step.latency_us, 10 + 100 + 2 * 1);
  EXPECT_NEAR(step.cost_us, step.latency_us + 1e6 * (16 / (2 * kGib) + 16 / (8 * kGib)), 1e-9);
}

TEST(TwoLevelPrices, SumsOfNarrowFloatsCrossInF32) {
  const Layout addends({8}, DType::bf16, Mesh({4}), {partial()});
  const auto steps = steps_along({addends, addends.with({shard(0)})}, {.topology = kTwoHosts});
  EXPECT_EQ(steps.front().kind, StepKind::reduce_scatter);
  EXPECT_EQ(steps.front().crossing_bytes, 2 * 4 * 4);  // 4 sums each way
}

// Rows land in the result. Addends are widened (8 of 4 bytes); a rank makes two sums that cross and two that
// stay, and receives two.
TEST(TwoLevelPrices, MemoryForSumsCounts) {
  const Layout rows({8}, DType::bf16, Mesh({4}), {shard(0)});
  const auto gather = steps_along({rows, rows.with({replicate()})}, {.topology = kTwoHosts});
  EXPECT_EQ(gather.front().peak_bytes, 4 + 16);
  const Layout addends = rows.with({partial()});
  const auto scatter = steps_along({addends, rows}, {.topology = kTwoHosts});
  EXPECT_EQ(scatter.front().peak_bytes, 16 + 4 + (8 + 4 + 2) * 4);
}

TEST(TwoLevelPrices, OnOneHostThereIsOneLevel) {
  const Layout rows({8}, DType::f32, Mesh({2}), {shard(0)});
  Topology one_level = kTwoHosts;
  one_level.two_levels = false;
  const auto best = plan(rows, rows.with({replicate()}), {.topology = kTwoHosts});
  EXPECT_FALSE(best->in_two_levels);
  EXPECT_EQ(best->cost_us, plan(rows, rows.with({replicate()}), {.topology = one_level})->cost_us);
}

}  // namespace
}  // namespace shardway::testing
