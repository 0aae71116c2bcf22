#include <gtest/gtest.h>

#include <algorithm>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "layout_reference.h"
#include "moves.h"
#include "refusal.h"
#include "shardway/layout.h"

namespace shardway::testing {
namespace {

using Numbers = std::vector<int64_t>;

// The k-th push of a to b is the k-th pull of b from a, boxes included.
void expect_pushes_are_pulls(const std::vector<Route>& routes) {
  for (size_t a = 0; a < routes.size(); ++a) {
    validate(routes[a]);
    ASSERT_EQ(routes[a].rank, static_cast<int64_t>(a));
    ASSERT_EQ(routes[a].size, static_cast<int64_t>(routes.size()));
    for (size_t b = 0; b < routes.size(); ++b) {
      const Moves pushes = with_peer(routes[a].pushes, static_cast<int64_t>(b));
      const Moves pulls = with_peer(routes[b].pulls, static_cast<int64_t>(a));
      ASSERT_EQ(pushes.size(), pulls.size()) << "from " << a << " to " << b;
      for (size_t k = 0; k < pushes.size(); ++k) {
        ASSERT_EQ(pushes[k].mine, pulls[k].theirs);
        ASSERT_EQ(pushes[k].theirs, pulls[k].mine);
      }
    }
  }
}

void expect_gives_the_target(const LayoutPair& pair, Dice& dice) {
  SCOPED_TRACE(text_of(pair));
  expect_pushes_are_pulls(routes_between(pair.from, pair.to));
  const int64_t ranks = ranks_of(pair.from, pair.to);
  const Addends addends = any_addends(pair.from, dice);
  const std::vector<Dense> expected = locals_of(pair.to, combined(addends, pair.from, pair.to), ranks);
  const std::vector<Dense> outputs = exchanged(pair.from, pair.to, locals_of(pair.from, addends, ranks));
  for (const int64_t rank : pair.to.mesh().ranks()) {
    ASSERT_EQ(outputs[static_cast<size_t>(rank)], expected[static_cast<size_t>(rank)]) << "rank " << rank;
  }
}

// Uneven, empty, reordered, ragged, across meshes that overlap or do not, of addends that are combined or
// stay.
TEST(RedistributionRoute, GivesTheTargetForThousandsOfRandomPairs) {
  Dice dice;
  for (int64_t i = 0; i < tries(20'000); ++i) {
    expect_gives_the_target(any_pair(dice), dice);
    if (HasFatalFailure()) return;
  }
}

TEST(RedistributionRoute, GivesTheTargetForAllPairsOfPlacementsOnTwoByThree) {
  Dice dice;
  const std::vector<Layout> sources = every_placement({5, 4}, Mesh({2, 3}), true);
  for (const Layout& from : sources) {
    for (const Layout& to : every_placement({5, 4}, Mesh({2, 3}), false))
      expect_gives_the_target({from, to}, dice);
  }
}

TEST(RedistributionRoute, GivesTheTargetBetweenMeshesOfOneRankAndMany) {
  Dice dice;
  const Layout one({7, 3}, DType::f32, Mesh({1}, {4}, {}), {replicate()});
  for (const Layout& many : every_placement({7, 3}, Mesh({2, 2}), false)) {
    expect_gives_the_target({one, many}, dice);
    expect_gives_the_target({many, one}, dice);
  }
}

TEST(RedistributionRoute, MovesEveryMissingElementOnceAndNothingElse) {
  Dice dice;
  for (int64_t i = 0; i < tries(5'000); ++i) {
    const LayoutPair pair = any_pair(dice);
    if (!any_addends(pair.from, dice).mesh_dims.empty()) continue;
    const std::vector<Route> routes = routes_between(pair.from, pair.to);
    for (int64_t position = 0; position < pair.to.mesh().size(); ++position) {
      const int64_t rank = pair.to.mesh().ranks()[static_cast<size_t>(position)];
      int64_t pulled = 0;
      for (const Move& pull : routes[static_cast<size_t>(rank)].pulls) {
        EXPECT_GT(pull.mine.volume(), 0) << text_of(pair);
        pulled += pull.mine.volume();
      }
      EXPECT_EQ(pulled, reference_box(pair.to, position).volume()) << text_of(pair) << ", rank " << rank;
    }
  }
}

// What a rank holds already it takes from itself, when its whole target box is there or nothing is sharded.
TEST(RedistributionRoute, WhatARankHoldsItTakesFromItself) {
  Dice dice;
  for (int64_t i = 0; i < tries(5'000); ++i) {
    const LayoutPair pair = any_pair(dice);
    if (!any_addends(pair.from, dice).mesh_dims.empty()) continue;
    for (int64_t position = 0; position < pair.to.mesh().size(); ++position) {
      const int64_t rank = pair.to.mesh().ranks()[static_cast<size_t>(position)];
      const auto own = pair.from.mesh().position_of(rank);
      const Box wanted = reference_box(pair.to, position);
      if (!own || wanted.volume() == 0 || !contains(reference_box(pair.from, *own), wanted)) continue;
      const Route route = redistribution_route(pair.from, pair.to, rank);
      ASSERT_EQ(route.pulls.size(), 1U) << text_of(pair);
      EXPECT_EQ(route.pulls[0].peer, rank) << text_of(pair);
    }
  }
}

// 4 replicas of a row each: each pulls from its own copy, so that no rank sends more than others.
TEST(RedistributionRoute, ReplicasShareTheLoad) {
  const Layout from({8}, DType::f32, Mesh({4, 2}), {replicate(), shard(0)});
  const std::vector<Route> routes = routes_between(from, from.with({replicate(), replicate()}));
  for (const Route& route : routes) {
    EXPECT_EQ(route.pushes.size(), 2U) << "rank " << route.rank;
    for (const Move& push : route.pushes) EXPECT_EQ(push.peer / 2, route.rank / 2);
  }
}

// Ranks 4 to 9 are outside a source of 4 replicas: the one at position p pulls from replica p modulo 4.
TEST(RedistributionRoute, RanksOutsideTheSourceTakeReplicasInTurn) {
  const Layout from({6}, DType::f32, Mesh({4}), {replicate()});
  const Layout to = from.with(Mesh({6}, {4, 5, 6, 7, 8, 9}, {}), {shard(0)});
  for (int64_t rank = 4; rank < 10; ++rank) {
    const Route route = redistribution_route(from, to, rank);
    ASSERT_EQ(route.pulls.size(), 1U);
    EXPECT_EQ(route.pulls[0].peer, (rank - 4) % 4);
  }
}

TEST(RedistributionRoute, ARankOutsideBothMeshesMovesNothing) {
  const Layout from({6, 2}, DType::f32, Mesh({2}), {shard(0)});
  const Route route = redistribution_route(from, from.with({shard(1)}), 7);
  EXPECT_TRUE(route.pulls.empty() && route.pushes.empty());
  EXPECT_EQ(route.input_shape, (Numbers{0, 0}));
  EXPECT_EQ(route.output_shape, (Numbers{0, 0}));
  EXPECT_EQ(route.size, 8);
}

TEST(RedistributionRoute, AveragesDivideByTheRanksOfTheirMeshDimsAlone) {
  const Layout from({6}, DType::f32, Mesh({2, 3, 5}), {partial(Op::avg), partial(), partial(Op::avg)});
  EXPECT_EQ(redistribution_route(from, from.with({replicate(), replicate(), replicate()}), 0).divisor, 10);
  EXPECT_EQ(redistribution_route(from, from.with({partial(Op::avg), shard(0), replicate()}), 0).divisor, 5);
  EXPECT_EQ(redistribution_route(from, from.with({partial(Op::avg), shard(0), partial(Op::avg)}), 0).divisor,
            1);
}

TEST(RedistributionRoute, RefusesToMakeAddends) {
  const Layout shards({8, 8}, DType::f32, Mesh({2, 2}), {shard(0), replicate()});
  const auto to = [&](const Layout& from, const std::vector<Placement>& placements) {
    return [&from, placements] { redistribution_route(from, from.with(placements), 0); };
  };
  EXPECT_TRUE(refuses_with(to(shards, {partial(), replicate()}), "S0,R", "P,R", "addends"));  // S → P
  EXPECT_TRUE(refuses_with(to(shards, {shard(0), partial()}), "S0,R", "S0,P", "addends"));    // R → P
  const Layout addends = shards.with({partial(), replicate()});
  EXPECT_TRUE(
      refuses_with(to(addends, {partial(Op::avg), replicate()}), "P(avg)", "addends"));  // P → other P
  EXPECT_TRUE(refuses_with(to(addends, {replicate(), partial()}), "addends"));  // P on another mesh dim
  EXPECT_TRUE(refuses_with([&] { redistribution_route(addends, addends.with(Mesh({4}), {partial()}), 0); },
                           "addends"));  // kept, but on another mesh
}

TEST(RedistributionRoute, RefusesAnotherTensor) {
  const Layout from({8, 8}, DType::f32, Mesh({2}), {shard(0)});
  EXPECT_TRUE(refuses_with(
      [&] {
        redistribution_route(from, Layout({8, 9}, DType::f32, Mesh({2}), {shard(0)}), 0);
      },
      "8x8", "8x9"));
  EXPECT_TRUE(refuses_with(
      [&] {
        redistribution_route(from, Layout({8, 8}, DType::f64, Mesh({2}), {shard(0)}), 0);
      },
      "f32", "f64"));
  EXPECT_TRUE(refuses_with([&] { redistribution_route(from, from, -1); }, "-1"));
}

}  // namespace
}  // namespace shardway::testing
