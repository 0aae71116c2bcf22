#include "plan/price/step_traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "moves.h"
#include "plan/search/stages.h"

namespace shardway::testing {
namespace {

std::set<int64_t> ranks_of(const Step& step) {
  std::set<int64_t> ranks(step.from.mesh().ranks().begin(), step.from.mesh().ranks().end());
  ranks.insert(step.to.mesh().ranks().begin(), step.to.mesh().ranks().end());
  return ranks;
}

// The planner counts without routes; here every rank's route is followed.
TEST(StepTraffic, AddsUpToTheStepsFigures) {
  Dice dice;
  for (int64_t i = 0; i < tries(500); ++i) {
    const LayoutPair pair = any_pair(dice);
    SCOPED_TRACE(text_of(pair));
    const Topology topology = any_topology(dice, 40);
    const auto best = plan(pair.from, pair.to, {.topology = topology});
    for (const Step& step : best->steps) {
      const StepTraffic all(step, topology);
      double us = 0;
      int64_t most_sent = 0;
      int64_t sent = 0;
      int64_t received = 0;
      for (const int64_t rank : ranks_of(step)) {
        const RankTraffic traffic = all.of(redistribution_route(step.from, step.to, rank));
        us = std::max(us, traffic.us);
        most_sent = std::max(most_sent, traffic.sent_bytes);
        sent += traffic.sent_bytes;
        received += traffic.received_bytes;
      }
      EXPECT_NEAR(us, step.cost_us, 1e-6 * std::max(1.0, step.cost_us)) << name_of(step.kind);
      EXPECT_EQ(most_sent, step.bytes) << name_of(step.kind);
      EXPECT_EQ(sent, step.total_bytes) << name_of(step.kind);
      EXPECT_EQ(received, step.total_bytes) << name_of(step.kind);
    }
  }
}

// The step that combines all addends of a layout where they lie.
Step all_reduce_of(const Layout& from, const Topology& topology) {
  std::vector<Placement> placements = from.placements();
  for (Placement& placement : placements) {
    if (placement.is_partial()) placement = replicate();
  }
  return steps_along({from, from.with(placements, from.order())}, {.topology = topology}).front();
}

TEST(StepTraffic, StagesOfAnAllReduceMoveWhatIsPriced) {
  Dice dice;
  for (int64_t i = 0; i < tries(500); ++i) {
    const Layout from = any_pair(dice).from;
    const bool has_addends = std::any_of(from.placements().begin(), from.placements().end(),
                                         [](const Placement& placement) { return placement.is_partial(); });
    if (!has_addends || from.ndim() == 0) continue;
    SCOPED_TRACE(to_string(from));
    const Topology topology = any_topology(dice, 40);
    const Step step = all_reduce_of(from, topology);
    ASSERT_EQ(step.kind, StepKind::all_reduce);
    const StepTraffic all(step, topology);
    std::vector<int64_t> numbers(static_cast<size_t>(*ranks_of(step).rbegin()) + 1);
    std::iota(numbers.begin(), numbers.end(), 0);
    dice.shuffle(numbers);
    const GroupRanks group(numbers);
    const Plan alone{.from = step.from, .to = step.to, .steps = {step}};
    const int64_t item = item_bytes(from.dtype());
    int64_t most_sent = 0;
    for (const int64_t number : ranks_of(step)) {
      const int64_t rank = *group.rank_of(number);
      const Stage stage = stages_of(alone, group, rank, 0).front();
      int64_t sent = elements_to_others(stage.route.pushes, rank);
      int64_t received = elements_to_others(stage.route.pulls, rank);
      if (stage.collection) {
        sent += elements_to_others(stage.collection->pushes, rank);
        received += elements_to_others(stage.collection->pulls, rank);
      }
      const RankTraffic traffic = all.of(redistribution_route(step.from, step.to, number));
      EXPECT_EQ(traffic.sent_bytes, sent * item) << "rank " << number;
      EXPECT_EQ(traffic.received_bytes, received * item) << "rank " << number;
      most_sent = std::max(most_sent, sent * item);
    }
    EXPECT_EQ(most_sent, step.bytes);
  }
}

// The example in all_reduce_shares.h: the first rank sends 5 + 5 elements for others to combine, and then its
// own 5 to three ranks.
TEST(StepTraffic, AnAllReduceIsPricedBySlabsAndNotByEqualShares) {
  const Step step = all_reduce_of(Layout({3, 5}, DType::f32, Mesh({4}), {partial()}), Topology{});
  EXPECT_EQ(step.bytes, (5 + 5 + 3 * 5) * 4);
  EXPECT_EQ(step.total_bytes, 2 * 3 * 15 * 4);
}

}  // namespace
}  // namespace shardway::testing
