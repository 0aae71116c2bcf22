// What PyTorch's own tests ask of a cost model, by default figures.
#include <gtest/gtest.h>

#include <cmath>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "layout_reference.h"
#include "shardway/plan.h"

namespace shardway::testing {
namespace {

using Placements = std::vector<Placement>;

double cost_on(const Mesh& mesh, const Placements& from, const Placements& to,
               const std::vector<int64_t>& shape = {10, 10}, const Topology& topology = {}) {
  const Layout layout(shape, DType::f32, mesh, from);
  return redistribute_cost(layout, layout.with(to), {.topology = topology});
}

double cost_on_4(const Placement& from, const Placement& to, const Topology& topology = {}) {
  return cost_on(Mesh({4}), {from}, {to}, {10, 10}, topology);
}

TEST(CostOn4, StayingCostsNothing) {
  for (const Placement& placement : {shard(0), shard(1), replicate(), partial()})
    EXPECT_EQ(cost_on_4(placement, placement), 0);
}

TEST(CostOn4, ASliceCostsNothing) { EXPECT_EQ(cost_on_4(replicate(), shard(0)), 0); }

TEST(CostOn4, GatheringCostsAsMuchAsScatteringSums) {
  for (const int64_t ranks_per_host : {0, 1, 2, 4}) {
    const Topology assumed{.ranks_per_host = ranks_per_host};
    EXPECT_EQ(cost_on_4(shard(0), replicate(), assumed), cost_on_4(partial(), shard(0), assumed));
    EXPECT_GT(cost_on_4(shard(0), replicate(), assumed), 0);
  }
}

TEST(CostOn4, AllReduceIsCheaperThanScatteringAndGathering) {
  EXPECT_LT(cost_on_4(partial(), replicate()),
            cost_on_4(shard(0), replicate()) + cost_on_4(partial(), shard(0)));
}

TEST(CostOn4, MakingAddendsIsImpossible) {
  EXPECT_EQ(cost_on_4(shard(0), partial()), kImpossible);
  EXPECT_EQ(cost_on_4(replicate(), partial()), kImpossible);
  EXPECT_EQ(cost_on_4(partial(), partial(Op::max)), kImpossible);
  EXPECT_EQ(cost_on_4(partial(Op::avg), partial()), kImpossible);
  EXPECT_TRUE(std::isinf(kImpossible));
}

TEST(CostOn2x2, AllReducingBothDimsIsDearerThanGatheringOrScatteringBoth) {
  const Mesh mesh({2, 2});
  const Placements addends{partial(), partial()};
  const Placements replicas{replicate(), replicate()};
  for (const Placements& shards : {Placements{shard(0), shard(0)}, Placements{shard(0), shard(1)}}) {
    EXPECT_GT(cost_on(mesh, addends, replicas), cost_on(mesh, shards, replicas));
    EXPECT_GT(cost_on(mesh, addends, replicas), cost_on(mesh, addends, shards));
  }
}

TEST(CostOn2x2, TheOrderOfShardsIsPriced) {
  const Placements both{shard(0), shard(0)};
  EXPECT_GT(cost_on(Mesh({2, 2}), both, {replicate(), shard(0)}),
            cost_on(Mesh({2, 2}), both, {shard(0), replicate()}));
}

bool holds_partial(const Layout& layout) {
  for (const Placement& placement : layout.placements()) {
    if (placement.is_partial()) return true;
  }
  return false;
}

// For every triple whose middle and target hold no Partial.
void expect_triangles(const std::vector<int64_t>& shape, const Topology& topology) {
  const std::vector<Layout> sources = every_placement(shape, Mesh({2, 2, 2}), true);
  std::vector<Layout> others;
  for (const Layout& layout : sources) {
    if (!holds_partial(layout)) others.push_back(layout);
  }
  const auto costs_to_others = [&](const std::vector<Layout>& from) {
    std::vector<std::vector<double>> costs;
    for (const Layout& a : from) {
      costs.emplace_back();
      for (const Layout& b : others) costs.back().push_back(redistribute_cost(a, b, {.topology = topology}));
    }
    return costs;
  };
  const auto first = costs_to_others(sources);
  const auto second = costs_to_others(others);
  for (size_t a = 0; a < sources.size(); ++a) {
    for (size_t b = 0; b < others.size(); ++b) {
      for (size_t c = 0; c < others.size(); ++c) {
        ASSERT_LE(first[a][c], first[a][b] + second[b][c] + 1e-9)
            << placements_text(sources[a]) << " → " << placements_text(others[b]) << " → "
            << placements_text(others[c]);
      }
    }
  }
}

TEST(Triangle, HoldsForEveryTripleOf16x8On2x2x2) { expect_triangles({16, 8}, {}); }
TEST(Triangle, HoldsForEveryTripleOf13x2x13On2x2x2) { expect_triangles({13, 2, 13}, {}); }
TEST(Triangle, HoldsForEveryTripleOf16x8On2x2x2OverHosts) {
  for (const int64_t ranks_per_host : {1, 2, 3, 4})
    expect_triangles({16, 8}, {.ranks_per_host = ranks_per_host});
}
TEST(Triangle, HoldsForEveryTripleOf13x2x13On2x2x2OverHosts) {
  expect_triangles({13, 2, 13}, {.ranks_per_host = 4});
}

// Middle and target hold no Partial; nodes are balanced layouts in any order, on one mesh.
TEST(Triangle, HoldsForRandomTriplesAndTopologies) {
  Dice dice;
  for (int64_t i = 0; i < tries(3000); ++i) {
    const Mesh mesh = any_mesh(dice, 8);
    const std::vector<int64_t> shape = any_tensor_shape(dice, 40);
    const Topology topology = any_topology(dice, 20);
    const auto balanced = [&](bool may_be_partial) {
      Layout layout = any_layout(dice, shape, mesh, may_be_partial);
      Placements placements = layout.placements();
      for (Placement& placement : placements) placement.sizes.clear();
      return layout.with(placements, layout.order());
    };
    const Layout a = balanced(true);
    const Layout b = balanced(false);
    const Layout c = balanced(false);
    const PlanOptions options{.topology = topology};
    const double around = redistribute_cost(a, b, options) + redistribute_cost(b, c, options);
    ASSERT_LE(redistribute_cost(a, c, options), around + 1e-9 * std::max(1.0, around))
        << to_string(a) << " → " << placements_text(b) << " → " << placements_text(c) << "\n"
        << to_json(topology);
  }
}

// Collectives of the plan for 16×16×16 f32 on one host; a slice is none.
int64_t collectives(const Mesh& mesh, const Placements& from, const Placements& to) {
  const Layout layout({16, 16, 16}, DType::f32, mesh, from);
  int64_t count = 0;
  for (const Step& step : plan(layout, layout.with(to), {.topology = Topology{}})->steps)
    count += step.kind == StepKind::slice ? 0 : 1;
  return count;
}

TEST(Collectives, BetweenShardsOn2x2AreAtMostTorchsNumber) {
  const Mesh mesh({2, 2});
  EXPECT_LE(collectives(mesh, {shard(0), shard(1)}, {shard(0), shard(0)}), 1);
  EXPECT_LE(collectives(mesh, {shard(0), shard(1)}, {shard(1), shard(0)}), 2);
  EXPECT_LE(collectives(mesh, {shard(0), shard(0)}, {shard(1), shard(1)}), 2);
  EXPECT_LE(collectives(mesh, {shard(0), shard(2)}, {shard(1), shard(0)}), 2);
  EXPECT_LE(collectives(mesh, {shard(1), shard(1)}, {shard(1), shard(2)}), 1);
}

TEST(Collectives, OfFusedDimsAreAtMostTorchsNumber) {
  const Mesh mesh({2, 2});
  EXPECT_LE(collectives(mesh, {partial(), partial()}, {replicate(), replicate()}), 1);
  EXPECT_LE(collectives(mesh, {partial(), partial()}, {shard(0), shard(0)}), 1);
  EXPECT_LE(collectives(mesh, {partial(), partial()}, {shard(0), shard(1)}), 2);
  EXPECT_LE(collectives(mesh, {shard(0), shard(0)}, {replicate(), replicate()}), 1);
  EXPECT_LE(collectives(mesh, {shard(0), shard(1)}, {replicate(), replicate()}), 2);
  EXPECT_LE(collectives(Mesh({2, 2, 2}), {partial(), partial(), partial()},
                        {replicate(), replicate(), replicate()}),
            1);
}

TEST(Uneven, AddendsOfFourElementsOn2x3ScatterTo110110) {
  Dice dice;
  const Layout from({4}, DType::f32, Mesh({2, 3}), {partial(), partial()});
  const auto plan = shardway::plan(from, from.with({shard(0), shard(0)}), {.topology = Topology{}});
  std::vector<Dense> locals = locals_of(from, any_addends(from, dice), 6);
  for (const Step& step : plan->steps) locals = exchanged(step.from, step.to, locals);
  std::vector<int64_t> sizes;
  for (const Dense& local : locals) sizes.push_back(local.shape[0]);
  EXPECT_EQ(sizes, (std::vector<int64_t>{1, 1, 0, 1, 1, 0}));
}

}  // namespace
}  // namespace shardway::testing
