#include "plan/search/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "layout_reference.h"
#include "refusal.h"

namespace shardway::testing {
namespace {

using Numbers = std::vector<int64_t>;
using StagesByRank = std::vector<std::vector<Stage>>;

// A group of all ranks up to the largest of a pair, in any order.
GroupRanks any_group(const LayoutPair& pair, Dice& dice) {
  Numbers numbers(static_cast<size_t>(ranks_of(pair.from, pair.to)));
  std::iota(numbers.begin(), numbers.end(), 0);
  if (dice.one_in(2)) dice.shuffle(numbers);
  return GroupRanks(numbers);
}

StagesByRank stages_by_rank(const Plan& plan, const GroupRanks& group, int64_t whole_up_to_bytes) {
  StagesByRank all;
  for (int64_t rank = 0; rank < group.size(); ++rank)
    all.push_back(stages_of(plan, group, rank, whole_up_to_bytes));
  return all;
}

Dense part_at(const Dense& whole, const Box& box) {
  Dense part = Dense::filled(box.extent, 0);
  const std::vector<Index> indices = indices_of(box);
  for (size_t i = 0; i < indices.size(); ++i) part.values[i] = whole.at(indices[i]);
  return part;
}

void put_at(Dense& whole, const Box& box, const Dense& part) {
  const std::vector<Index> indices = indices_of(box);
  for (size_t i = 0; i < indices.size(); ++i) whole.at(indices[i]) = part.values[i];
}

// What every rank of the group holds after stage `k`.
std::vector<Dense> run_stage(const StagesByRank& stages, size_t k, const std::vector<Dense>& inputs) {
  std::vector<Route> routes;
  for (const auto& of_rank : stages) routes.push_back(of_rank[k].route);
  const std::vector<Outcome> landed = simulate(routes, inputs);
  std::vector<Dense> outputs;
  std::vector<Dense> shares;
  for (size_t r = 0; r < stages.size(); ++r) {
    const Stage& stage = stages[r][k];
    outputs.push_back(Dense::filled(stage.output_shape, kUntouched));
    put_at(outputs[r], stage.landing, landed[r].output);
    shares.push_back(landed[r].output);
  }
  if (!stages[0][k].collection) return outputs;
  for (size_t r = 0; r < stages.size(); ++r) routes[r] = *stages[r][k].collection;
  const std::vector<Outcome> collected = simulate(routes, shares);
  for (size_t r = 0; r < stages.size(); ++r) {
    for (const Move& pull : routes[r].pulls)
      put_at(outputs[r], pull.mine, part_at(collected[r].output, pull.mine));
  }
  return outputs;
}

void expect_gives_the_target(const LayoutPair& pair, const PlanOptions& options, Dice& dice) {
  SCOPED_TRACE(text_of(pair));
  const auto made = plan(pair.from, pair.to, options);
  const GroupRanks group = any_group(pair, dice);
  const StagesByRank stages = stages_by_rank(*made, group, dice.any_of<int64_t>({0, 0, 64}));

  const Addends addends = any_addends(pair.from, dice);
  const std::vector<Dense> inputs = locals_of(pair.from, addends, group.size());
  std::vector<Dense> held;
  for (int64_t rank = 0; rank < group.size(); ++rank)
    held.push_back(inputs[static_cast<size_t>(group.number_of(rank))]);
  for (size_t k = 0; k < made->steps.size(); ++k) held = run_stage(stages, k, held);

  const std::vector<Dense> expected = locals_of(pair.to, combined(addends, pair.from, pair.to), group.size());
  for (const int64_t number : pair.to.mesh().ranks()) {
    ASSERT_EQ(held[static_cast<size_t>(*group.rank_of(number))], expected[static_cast<size_t>(number)])
        << "rank " << number;
  }
}

TEST(Stages, RunAPlanForThousandsOfRandomPairsOnAnyTopology) {
  Dice dice;
  for (int64_t i = 0; i < tries(3'000); ++i) {
    const LayoutPair pair = any_pair(dice);
    expect_gives_the_target(pair, {.topology = any_topology(dice, ranks_of(pair.from, pair.to))}, dice);
    if (HasFatalFailure()) return;
  }
}

Layout on_two_ranks(const std::vector<Placement>& placements, std::vector<int64_t> shape = {4, 3}) {
  return {std::move(shape), DType::f32, Mesh({2}), placements};
}

// Two ranks would be served by an exchange as well.
Plan all_reduce_of_two() {
  Plan made = *plan(on_two_ranks({partial()}), on_two_ranks({replicate()}));
  made.steps[0].kind = StepKind::all_reduce;
  return made;
}

// The example in the header.
TEST(Stages, AnAllReduceLandsOnItsShareAndCollectsTheOthers) {
  const Stage stage = stages_of(all_reduce_of_two(), GroupRanks({0, 1}), 0, 0).front();
  EXPECT_EQ(stage.landing, (Box{.offset = {0, 0}, .extent = {2, 3}}));
  ASSERT_EQ(stage.route.pulls.size(), 2U);
  for (const Move& pull : stage.route.pulls) EXPECT_EQ(pull.theirs, stage.landing);
  ASSERT_EQ(stage.collection->pulls.size(), 1U);
  EXPECT_EQ(stage.collection->pulls[0].peer, 1);
  EXPECT_EQ(stage.collection->pulls[0].mine, (Box{.offset = {2, 0}, .extent = {2, 3}}));
}

TEST(Stages, ASmallAllReduceIsOneRoute) {
  const int64_t bytes = 4 * 3 * 4;
  EXPECT_FALSE(stages_of(all_reduce_of_two(), GroupRanks({0, 1}), 0, bytes).front().collection);
  EXPECT_TRUE(stages_of(all_reduce_of_two(), GroupRanks({0, 1}), 0, bytes - 1).front().collection);
}

TEST(Stages, ALargeExchangeThatCombinesInPlaceIsTwoRoutes) {
  const auto is_two = [](int64_t rows) {
    const Layout from = on_two_ranks({partial()}, {rows, 1024});
    const auto made = plan(from, from.with({replicate()}));
    EXPECT_EQ(made->steps[0].kind, StepKind::exchange);
    return stages_of(*made, GroupRanks({0, 1}), 0, 0).front().collection.has_value();
  };
  EXPECT_FALSE(is_two(64));  // 256 KiB
  EXPECT_TRUE(is_two(65));
}

TEST(Stages, AnEngineThatCombinesInOnePassHasOneRouteForAnySize) {
  const Layout from = on_two_ranks({partial(Op::avg)}, {4096, 1024});
  const auto made = plan(from, from.with({replicate()}));
  const int64_t any_size = std::numeric_limits<int64_t>::max();
  const Stage stage = stages_of(*made, GroupRanks({1, 0}), 0, any_size).front();
  EXPECT_FALSE(stage.collection);
  EXPECT_EQ(stage.route.pattern, Pattern::all_reduce);
  EXPECT_EQ(stage.route.divisor, 2);
}

TEST(Stages, CollectivesOfTheWholeGroupSayWhatTheyAre) {
  const auto pattern = [](const Layout& from, const Layout& to, const Numbers& group) {
    return stages_of(*plan(from, to), GroupRanks(group), 0, 0).front().route.pattern;
  };
  const Layout rows = on_two_ranks({shard(0)});
  const Layout columns = on_two_ranks({shard(1)});
  const Layout whole = on_two_ranks({replicate()});
  EXPECT_EQ(pattern(rows, whole, {0, 1}), Pattern::all_gather);
  EXPECT_EQ(pattern(columns, whole, {0, 1}), Pattern::all_gather);
  EXPECT_EQ(pattern(on_two_ranks({partial()}), columns, {0, 1}), Pattern::reduce_scatter);
  EXPECT_EQ(pattern(on_two_ranks({partial()}), whole, {0, 1}), Pattern::all_reduce);
  EXPECT_EQ(pattern(on_two_ranks({partial()}), whole, {1, 0}), Pattern::all_reduce);
  EXPECT_EQ(pattern(on_two_ranks({partial()}), whole, {0, 1, 2}), Pattern::exchange);
  EXPECT_EQ(pattern(whole, rows, {0, 1}), Pattern::own);
  EXPECT_EQ(pattern(rows, whole, {1, 0}), Pattern::exchange);     // parts in another order than ranks
  EXPECT_EQ(pattern(rows, whole, {0, 1, 2}), Pattern::exchange);  // a rank that takes no part
}

TEST(Stages, APlanThatIsNotWhatItSaysIsRefused) {
  const Layout rows = on_two_ranks({shard(0)});
  const Layout columns = on_two_ranks({shard(1)});
  const Layout whole = on_two_ranks({replicate()});
  const auto stages = [](const Plan& plan, const Numbers& group) {
    stages_of(plan, GroupRanks(group), 0, 0);
  };
  Plan lying = *plan(rows, whole);
  lying.steps[0].kind = StepKind::slice;
  EXPECT_TRUE(refuses_with([&] { stages(lying, {0, 1}); }, "S0", "R", "slice", "others hold"));
  lying.steps[0].kind = StepKind::all_reduce;
  EXPECT_TRUE(refuses_with([&] { stages(lying, {0, 1}); }, "all_reduce"));
  EXPECT_TRUE(refuses_with([&] { stages(*plan(rows, whole), {0, 2}); }, "rank 1", "0,2"));

  EXPECT_TRUE(refuses_with([&] { check_leads(*plan(rows, whole), rows, columns); }, "S0", "S1", "R"));
  Plan torn = *plan(rows, whole);
  torn.steps[0].from = columns;
  EXPECT_TRUE(refuses_with([&] { check_leads(torn, rows, whole); }, "S1", "after"));
  torn = *plan(rows, whole);
  torn.steps.clear();
  EXPECT_TRUE(refuses_with([&] { check_leads(torn, rows, whole); }, "end at"));
  check_leads(*plan(rows, whole), rows, whole);
}

TEST(Stages, TheHashTellsPlansApart) {
  const Layout addends = on_two_ranks({partial()});
  const Layout rows = on_two_ranks({shard(0)});
  const Layout whole = on_two_ranks({replicate()});
  const Plan straight = all_reduce_of_two();
  Plan detour = straight;
  detour.steps = {plan(addends, rows)->steps[0], plan(rows, whole)->steps[0]};
  Plan exchange = straight;
  exchange.steps[0].kind = StepKind::exchange;
  EXPECT_NE(hash_of(straight), hash_of(detour));
  EXPECT_NE(hash_of(straight), hash_of(exchange));
  EXPECT_NE(hash_of(straight), hash_of(*plan(addends, rows)));
  EXPECT_EQ(hash_of(straight), hash_of(plan_from_json(to_json(straight))));
}

}  // namespace
}  // namespace shardway::testing
