// A step on one host costs what calls like it took.
#include "plan/price/table_prices.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "plan_oracle.h"
#include "refusal.h"
#include "shardway/plan.h"

namespace shardway::testing {
namespace {

const PriceTable kTable{.ranks = 4,
                        .curves = {{"all_gather", {.points = {{1000, 2}, {2000, 4}, {4000, 20}}}},
                                   {"reduce_scatter", {.points = {{1000, 3}, {4000, 9}}}},
                                   {"all_reduce", {.points = {{1000, 5}, {4000, 11}}}},
                                   {"all_to_all", {.points = {{1000, 6}, {3000, 10}}, .busiest_share = 0.5}},
                                   {"permute", {.points = {{1000, 2}, {3000, 4}}, .busiest_share = 0.5}}}};

Topology with_table(const PriceTable& table) {
  Topology topology;
  topology.tables = std::make_shared<const PriceTables>(PriceTables{table});
  return topology;
}

double us_of(ReadPattern pattern, const ReadLoad& load) {
  return TablePrices(kTable, 4).of(pattern, load).us;
}

TEST(TablePrices, AreStraightBetweenPointsFlatBeforeAndProportionalBeyond) {
  const auto gathered = [](double bytes) {
    return us_of(ReadPattern::gather, {.most_bytes = bytes, .mean_bytes = bytes, .peers = 3});
  };
  EXPECT_DOUBLE_EQ(gathered(10), 2);
  EXPECT_DOUBLE_EQ(gathered(1000), 2);
  EXPECT_DOUBLE_EQ(gathered(1500), 3);
  EXPECT_DOUBLE_EQ(gathered(3000), 12);
  EXPECT_DOUBLE_EQ(gathered(8000), 40);
}

TEST(TablePrices, UnequalPartsCountByTheShareOfTheBusiest) {
  const ReadLoad load{.most_bytes = 3000, .mean_bytes = 1000, .peers = 3};
  EXPECT_DOUBLE_EQ(us_of(ReadPattern::exchange, load), 8);  // at 2000 bytes
  EXPECT_DOUBLE_EQ(us_of(ReadPattern::combine, load), 7);   // at 3000 bytes
}

TEST(TablePrices, AnExchangeLiesBetweenAPermuteAndAnAllToAll) {
  const auto exchanged = [](int64_t peers) {
    return us_of(ReadPattern::exchange, {.most_bytes = 2000, .mean_bytes = 2000, .peers = peers});
  };
  EXPECT_DOUBLE_EQ(exchanged(1), 3);
  EXPECT_DOUBLE_EQ(exchanged(2), 5.5);
  EXPECT_DOUBLE_EQ(exchanged(3), 8);
  EXPECT_DOUBLE_EQ(exchanged(7), 8);
}

// At 2000 bytes a permute takes 3, of which nothing is kept; an all_to_all 8, of which a quarter is; and the
// exchanges that were measured 16, of which 0.8 were kept.
PriceTable with_exchanges() {
  PriceTable table = kTable;
  table.kept_share = 0.8;
  table.step_us = 2;
  table.curves["exchange"] = {.points = {{1000, 10}, {2000, 16}, {3000, 18}}};
  return table;
}

TEST(TablePrices, AnExchangeIsPricedByWhatItsRanksKeep) {
  const TablePrices prices(with_exchanges(), 4);
  const auto us_for = [&](double kept_bytes, int64_t peers) {
    ReadLoad load{.peers = peers};
    load.add(2000, kept_bytes, 1);
    return prices.of_step(ReadPattern::exchange, load).us;
  };
  EXPECT_DOUBLE_EQ(us_for(0, 1), 3 + 2);
  EXPECT_DOUBLE_EQ(us_for(500, 3), 8 + 2);
  EXPECT_DOUBLE_EQ(us_for(1600, 1), 16);
  EXPECT_DOUBLE_EQ(us_for(1600, 3), 16);
  EXPECT_DOUBLE_EQ(us_for(1000, 1), (3 + 2) * 3.0 / 8 + 16 * 5.0 / 8);
  EXPECT_DOUBLE_EQ(us_for(2000, 1), 16) << "beyond what was measured it stays there";
  EXPECT_DOUBLE_EQ(us_for(0, 3), 8 + 2) << "less than an all_to_all keeps is priced as one";
}

TEST(TablePrices, AStepThatKeepsAsMuchAsAnAllToAllIsPricedAsOne) {
  const Layout before({4, 2000}, DType::u8, Mesh({4}), {shard(0)});
  const double us =
      redistribute_cost(before, before.with({shard(1)}), {.topology = with_table(with_exchanges())});
  EXPECT_DOUBLE_EQ(us, 8 + 2);
}

TEST(TablePrices, OfATableOfAnEarlierShardwayTheFieldIsNamed) {
  Topology topology = with_table(kTable);
  std::string text = to_json(topology);
  const std::string field = "\"kept_share\"";
  ASSERT_NE(text.find(field), std::string::npos);
  text.replace(text.find(field), field.size(), "\"own_share\"");
  EXPECT_TRUE(refuses_with([&] { topology_from_json(text); }, "own_share is of an earlier shardway"));
}

TEST(TablePrices, TheTableOfTheNearestNumberOfRanksCounts) {
  PriceTable eight = kTable;
  eight.ranks = 8;
  for (auto& [op, curve] : eight.curves) {
    for (PriceCurve::Point& point : curve.points) point.us *= 10;
  }
  Topology topology;
  topology.tables = std::make_shared<const PriceTables>(PriceTables{kTable, eight});
  const auto gather_us = [&](int64_t ranks) {
    const Layout parts({1000}, DType::u8, Mesh({ranks}), {shard(0)});
    return redistribute_cost(parts, parts.with({replicate()}), {.topology = topology});
  };
  EXPECT_DOUBLE_EQ(gather_us(2), 2);
  EXPECT_DOUBLE_EQ(gather_us(5), 2);
  EXPECT_DOUBLE_EQ(gather_us(8), 20);
  EXPECT_DOUBLE_EQ(gather_us(16), 20);
}

TEST(TablePrices, DoNotCountBetweenHosts) {
  Topology topology = with_table(kTable);
  const Layout parts({1000}, DType::u8, Mesh({4}), {shard(0)});
  EXPECT_DOUBLE_EQ(redistribute_cost(parts, parts.with({replicate()}), {.topology = topology}), 2);
  topology.ranks_per_host = 2;
  Topology without = topology;
  without.tables = nullptr;
  EXPECT_EQ(redistribute_cost(parts, parts.with({replicate()}), {.topology = topology}),
            redistribute_cost(parts, parts.with({replicate()}), {.topology = without}));
}

PriceTable any_table(Dice& dice) {
  PriceTable table{.ranks = dice.between(int64_t{2}, int64_t{8}),
                   .kept_share = static_cast<double>(dice.between(int64_t{0}, int64_t{10})) / 10,
                   .step_us = static_cast<double>(dice.between(int64_t{0}, int64_t{40}))};
  for (const char* op : {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute", "exchange"}) {
    PriceCurve& curve = table.curves[op];
    curve.busiest_share = static_cast<double>(dice.between(int64_t{0}, int64_t{10})) / 10;
    double bytes = 64;
    for (int i = 0; i < 5; ++i, bytes *= 4)
      curve.points.push_back(
          {.bytes = bytes, .us = static_cast<double>(dice.between(int64_t{100}, int64_t{10000})) / 100});
  }
  return table;
}

// Every layout, every pair of them priced as one step, every path.
double cheapest_of_all(const LayoutPair& pair, const Topology& topology) {
  const std::vector<Layout> layouts = every_layout({pair.from, pair.to}, pair.from.placements());
  const auto index_of = [&](const Layout& layout) {
    return static_cast<size_t>(std::find(layouts.begin(), layouts.end(), layout) - layouts.begin());
  };
  std::vector<std::vector<double>> us(layouts.size(), std::vector<double>(layouts.size(), kImpossible));
  for (size_t a = 0; a < layouts.size(); ++a) {
    for (size_t b = 0; b < layouts.size(); ++b) {
      if (a == b) us[a][b] = 0;
      if (a != b && redistribute_cost(layouts[a], layouts[b], {.topology = topology}) < kImpossible)
        us[a][b] = steps_along({layouts[a], layouts[b]}, {.topology = topology}).front().cost_us;
    }
  }
  for (size_t k = 0; k < us.size(); ++k) {
    for (size_t a = 0; a < us.size(); ++a) {
      for (size_t b = 0; b < us.size(); ++b) us[a][b] = std::min(us[a][b], us[a][k] + us[k][b]);
    }
  }
  return us.at(index_of(pair.from)).at(index_of(pair.to));
}

// Prices need not rise with bytes, nor lie on a line: the bounds of the search hold all the same.
TEST(TablePrices, ThePlanIsAsCheapAsTheCheapestOfAllPaths) {
  Dice dice;
  for (int64_t i = 0; i < tries(40); ++i) {
    const Mesh mesh = dice.one_in(2) ? Mesh({2, 2}) : Mesh({2, 3});
    const std::vector<int64_t> shape{dice.between(int64_t{1}, int64_t{900}),
                                     dice.between(int64_t{1}, int64_t{9})};
    const LayoutPair pair = any_pair_on(dice, shape, mesh);
    const Topology topology = with_table(any_table(dice));
    const double expected = cheapest_of_all(pair, topology);
    const double cost = redistribute_cost(pair.from, pair.to, {.topology = topology});
    ASSERT_NEAR(cost, expected, std::max(1e-9 * expected, 1e-8)) << text_of(pair) << "\n"
                                                                 << to_json(topology);
  }
}

}  // namespace
}  // namespace shardway::testing
