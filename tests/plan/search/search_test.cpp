// The planner against an exhaustive search over boxes: all pairs of layouts of small meshes.
#include <gtest/gtest.h>

#include <cmath>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "plan_oracle.h"
#include "shardway/plan.h"

namespace shardway::testing {
namespace {

using Shapes = std::vector<std::vector<int64_t>>;

constexpr double kNoWay = std::numeric_limits<double>::infinity();

// Balanced layouts in every shard order, with addends on any mesh dims.
std::vector<Layout> layouts_of(const std::vector<int64_t>& shape, const Mesh& mesh) {
  const std::vector<Placement> partials(mesh.shape().size(), partial());
  return every_layout({Layout(shape, DType::f32, mesh, partials)}, partials);
}

void expect_cost(const Layout& from, const Layout& to, const Topology& topology, double expected) {
  const double cost = redistribute_cost(from, to, {.topology = topology});
  if (expected == kNoWay || cost == kNoWay) {
    EXPECT_EQ(cost, expected) << text_of({from, to});
  } else {
    // A billionth, or a few femtoseconds, to which every step is rounded.
    EXPECT_LE(std::abs(cost - expected), std::max(1e-9 * expected, 4e-9))
        << text_of({from, to}) << ": " << cost << ", the oracle " << expected;
  }
}

// All of them, but for builds in which that takes minutes.
constexpr size_t kAllPairs = tries(2) == 2 ? SIZE_MAX : 100;

void expect_cheapest(const std::vector<int64_t>& shape, const Mesh& mesh, const Topology& topology,
                     size_t most_pairs = kAllPairs) {
  const std::vector<Layout> layouts = layouts_of(shape, mesh);
  const Costs costs = cheapest_paths(layouts, topology);
  Dice dice(1);  // the same sample in every run
  const bool is_sample = layouts.size() * layouts.size() > most_pairs;
  const auto one_in = static_cast<int64_t>(is_sample ? layouts.size() * layouts.size() / most_pairs : 1);
  for (size_t a = 0; a < layouts.size(); ++a) {
    for (size_t b = 0; b < layouts.size(); ++b) {
      if (is_sample && !dice.one_in(one_in)) continue;
      expect_cost(layouts[a], layouts[b], topology, costs[a][b]);
      if (::testing::Test::HasFailure()) return;
    }
  }
  clear_plans();
}

// The assumed figures, where latency decides, and others, where bytes do.
const std::vector<Topology> kTopologies{
    {},
    {.ranks_per_host = 2},
    {.base_us = 0.5,
     .within_host = {.latency_us = 0.05, .gib_per_s = 0.01},
     .between_hosts = {.latency_us = 0.05, .gib_per_s = 0.01}},
    {.base_us = 1,
     .within_host = {.latency_us = 1, .gib_per_s = 0.05},
     .between_hosts = {.latency_us = 1, .gib_per_s = 0.05},
     .dims = {{"0", {.latency_us = 3, .gib_per_s = 0.002}}, {"1", {.latency_us = 0.1, .gib_per_s = 0.05}}}},
};

void expect_cheapest(const Shapes& shapes, const Mesh& mesh) {
  for (const auto& shape : shapes) {
    for (const Topology& topology : kTopologies) {
      expect_cheapest(shape, mesh, topology);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

const Shapes kShapes{{}, {1}, {8}, {13}, {16, 8}, {5, 3}, {8, 4, 6}, {13, 2, 13}, {3, 5, 2}, {0, 4}};

TEST(Search, IsAsCheapAsTheExhaustiveOneForAllPairsOn4) { expect_cheapest(kShapes, Mesh({4})); }
TEST(Search, IsAsCheapAsTheExhaustiveOneForAllPairsOn2x2) { expect_cheapest(kShapes, Mesh({2, 2})); }
TEST(Search, IsAsCheapAsTheExhaustiveOneForAllPairsOn2x3) { expect_cheapest(kShapes, Mesh({2, 3})); }

TEST(Search, IsAsCheapAsTheExhaustiveOneForAllPairsOf1dAnd2dTensorsOn2x2x2) {
  for (const auto& shape : Shapes{{16}, {13}, {16, 8}, {13, 5}, {2, 3}, {999, 77}}) {
    for (const Topology& topology : {kTopologies[0], kTopologies[1], kTopologies[2]})
      expect_cheapest(shape, Mesh({2, 2, 2}), topology);
  }
}

TEST(Search, IsAsCheapAsTheExhaustiveOneForAllPairsOfEven3dTensorsOn2x2x2) {
  for (const Topology& topology : {kTopologies[0], kTopologies[1]})
    expect_cheapest({16, 16, 16}, Mesh({2, 2, 2}), topology);
}

TEST(Search, IsAsCheapAsTheExhaustiveOneForAllPairsOfUneven3dTensorsOn2x2x2) {
  for (const Topology& topology : {kTopologies[0], kTopologies[1]})
    expect_cheapest({13, 2, 13}, Mesh({2, 2, 2}), topology);
}

TEST(Search, IsAsCheapAsTheExhaustiveOneWhereBytesDecideOn2x2x2) {
  for (const auto& shape : Shapes{{512, 96, 40}, {13, 5, 9}}) {
    expect_cheapest(shape, Mesh({2, 2, 2}), kTopologies[2], 2000);
    expect_cheapest(shape, Mesh({2, 2, 2}), kTopologies[3], 300);
  }
}

TEST(Search, IsAsCheapAsTheExhaustiveOneWithHostsThatLieAcrossTheMesh) {
  const Link slow{.latency_us = 0.2, .gib_per_s = 0.01};
  const std::vector<Topology> strewn{
      {.base_us = 0.3, .between_hosts = slow, .ranks_per_host = 3},
      {.base_us = 0.3, .between_hosts = slow, .host_of_rank = {0, 1, 0, 1, 1, 0, 2, 2}},
      {.base_us = 0.3,
       .between_hosts = {.latency_us = 2, .gib_per_s = 50},
       .host_of_rank = {0, 1, 0, 1, 0, 1, 0, 1}}};
  for (const Topology& topology : strewn) {
    expect_cheapest({13, 6}, Mesh({2, 2, 2}), topology, 1000);
    expect_cheapest({7, 9}, Mesh({2, 3}), topology);
  }
}

TEST(Search, IsAsCheapAsTheExhaustiveOneWhenCopiesAndReductionsHaveAPrice) {
  const Link slow{.latency_us = 0.01, .gib_per_s = 0.3};
  const std::vector<Topology> measured{
      {.copy_gib_per_s = 0.5, .reduce_gib_per_s = 0.1, .source = "measured"},
      {.base_us = 0.2, .within_host = slow, .between_hosts = slow, .copy_gib_per_s = 0.05},
      {.base_us = 0.2, .ranks_per_host = 4, .reduce_gib_per_s = 0.002}};
  for (const Topology& topology : measured) {
    expect_cheapest({13, 6}, Mesh({2, 2, 2}), topology, 1000);
    expect_cheapest({16, 8}, Mesh({2, 2, 2}), topology, 1000);
    expect_cheapest({7, 9}, Mesh({2, 3}), topology);
  }
}

}  // namespace
}  // namespace shardway::testing
