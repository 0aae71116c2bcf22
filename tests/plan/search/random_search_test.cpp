// The planner against an exhaustive search over boxes: random pairs and topologies.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <iostream>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "plan_oracle.h"
#include "shardway/plan.h"
#include "step_prices.h"

namespace shardway::testing {
namespace {

// A billionth, or a few femtoseconds, to which every step is rounded.
bool is_close(double cost, double expected) {
  return std::abs(cost - expected) <= std::max(1e-9 * expected, 4e-9);
}

void expect_cheapest(const LayoutPair& pair, const Topology& topology) {
  const double expected = cheapest_path(pair.from, pair.to, topology);
  const double cost = redistribute_cost(pair.from, pair.to, {.topology = topology});
  ASSERT_TRUE(is_close(cost, expected)) << text_of(pair) << "\n"
                                        << cost << ", the oracle " << expected << "\n"
                                        << to_json(topology);
}

// Runs `check` again and again for some seconds.
template <class Check>
void repeat_for(std::chrono::milliseconds time, const Check& check) {
  const auto end = std::chrono::steady_clock::now() + time;
  int64_t times = 0;
  for (; std::chrono::steady_clock::now() < end; ++times) {
    check();
    if (::testing::Test::HasFailure()) return;
    if (times % 1000 == 0) clear_plans();
  }
  std::cout << times << " times\n";
}

TEST(RandomSearch, IsAsCheapAsTheExhaustiveOneOnOneMesh) {
  Dice dice;
  repeat_for(std::chrono::seconds(3), [&] {
    const Mesh mesh = any_mesh(dice, 8);
    const std::vector<int64_t> shape = any_tensor_shape(dice, 20);
    const LayoutPair pair = any_pair_on(dice, shape, mesh);
    expect_cheapest(pair, any_topology(dice, 20));
  });
}

TEST(RandomSearch, IsAsCheapAsTheExhaustiveOneBetweenMeshes) {
  Dice dice;
  repeat_for(std::chrono::seconds(3), [&] {
    const LayoutPair pair = any_pair(dice);
    expect_cheapest(pair, any_topology(dice, 40));
  });
}

TEST(RandomSearch, IsAsCheapAsTheExhaustiveOneForAllPairsOn2x2x2WithAnyTopology) {
  Dice dice;
  const Mesh mesh({2, 2, 2});
  const std::vector<Placement> partials(3, partial());
  repeat_for(std::chrono::seconds(4), [&] {
    std::vector<int64_t> shape;
    for (int d = 0; d < 3; ++d) shape.push_back(dice.between(int64_t{1}, int64_t{40}));
    const std::vector<Layout> layouts = every_layout({Layout(shape, DType::f32, mesh, partials)}, partials);
    const Topology topology = any_topology(dice, 8);
    const Costs costs = cheapest_paths(layouts, topology);
    for (int i = 0; i < 200; ++i) {
      const auto a = static_cast<size_t>(dice.between(int64_t{0}, static_cast<int64_t>(layouts.size()) - 1));
      const auto b = static_cast<size_t>(dice.between(int64_t{0}, static_cast<int64_t>(layouts.size()) - 1));
      if (std::isinf(costs[a][b])) continue;
      const double cost = redistribute_cost(layouts[a], layouts[b], {.topology = topology});
      ASSERT_TRUE(is_close(cost, costs[a][b])) << text_of({layouts[a], layouts[b]}) << "\n"
                                               << cost << ", the oracle " << costs[a][b] << "\n"
                                               << to_json(topology);
    }
  });
}

// More ranks than are looked at one by one and pair by pair.
TEST(RandomSearch, IsAsCheapAsTheExhaustiveOneOnMoreThan64Ranks) {
  Dice dice;
  const std::vector<Mesh> meshes{Mesh({5, 13}), Mesh({8, 9}), Mesh({66}), Mesh({3, 11, 2}), Mesh({2, 4, 9})};
  repeat_for(std::chrono::seconds(6), [&] {
    const Mesh& mesh = dice.any_of(meshes);
    std::vector<int64_t> shape{dice.between(int64_t{1}, int64_t{300})};
    if (dice.one_in(2)) shape.push_back(dice.between(int64_t{1}, int64_t{90}));
    const LayoutPair pair = any_pair_on(dice, shape, mesh);
    Topology topology = any_topology(dice, mesh.size());
    if (dice.one_in(2)) topology.host_of_rank.clear();
    if (dice.one_in(2)) topology.ranks_per_host = dice.any_of<int64_t>({0, 2, 9, 13, 18, 22, 36});
    expect_cheapest(pair, topology);
  });
}

TEST(RandomSearch, StepsOn128RanksCostWhatTheirBusiestRankDoes) {
  Dice dice;
  const Mesh mesh({4, 4, 8});
  for (int64_t i = 0; i < tries(60); ++i) {
    const std::vector<int64_t> shape{dice.between(int64_t{1}, int64_t{300}),
                                     dice.between(int64_t{1}, int64_t{90})};
    const LayoutPair pair = any_pair_on(dice, shape, mesh);
    Topology topology = any_topology(dice, 128);
    if (dice.one_in(2)) topology.host_of_rank.clear();
    if (dice.one_in(2)) topology.ranks_per_host = dice.any_of<int64_t>({0, 4, 8, 16, 32, 64});
    const StepPrices prices(mesh, mesh, topology);
    for (const Step& step : plan(pair.from, pair.to, {.topology = topology})->steps) {
      const double expected = prices.step_us(Held(step.from), Held(step.to));
      ASSERT_TRUE(is_close(step.cost_us, expected)) << text_of({step.from, step.to}) << "\n"
                                                    << step.cost_us << ", the oracle " << expected << "\n"
                                                    << to_json(topology);
    }
  }
}

}  // namespace
}  // namespace shardway::testing
