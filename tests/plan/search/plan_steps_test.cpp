// The steps of a plan: they lead from source to target, and send what they say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "layout_reference.h"
#include "shardway/plan.h"

namespace shardway::testing {
namespace {

// Small bandwidths, so that plans of several steps win.
const std::vector<Topology> kFewTopologies{{},
                                           {.ranks_per_host = 2},
                                           {.base_us = 0.2,
                                            .within_host = {.latency_us = 0.1, .gib_per_s = 0.05},
                                            .between_hosts = {.latency_us = 1, .gib_per_s = 0.005},
                                            .ranks_per_host = 2},
                                           {.base_us = 0.01,
                                            .within_host = {.latency_us = 2, .gib_per_s = 0.5},
                                            .between_hosts = {.latency_us = 2, .gib_per_s = 0.5}}};

struct Sent {
  int64_t most = 0;
  int64_t total = 0;
};

Sent sent_by(const std::vector<Route>& routes) {
  Sent sent;
  for (const Route& route : routes) {
    int64_t own = 0;
    for (const Move& push : route.pushes) own += push.peer == route.rank ? 0 : push.mine.volume();
    sent.most = std::max(sent.most, own);
    sent.total += own;
  }
  return sent;
}

void expect_chain(const Plan& plan) {
  const Layout* before = &plan.from;
  double cost_us = 0;
  int64_t bytes = 0;
  int64_t total_bytes = 0;
  int64_t peak_bytes = 0;
  for (const Step& step : plan.steps) {
    ASSERT_EQ(step.from, *before);
    before = &step.to;
    cost_us += step.cost_us;
    bytes += step.bytes;
    total_bytes += step.total_bytes;
    peak_bytes = std::max(peak_bytes, step.peak_bytes);
    EXPECT_LE(step.latency_us, step.cost_us + 1e-9);
    EXPECT_LE(step.bytes, step.total_bytes);
  }
  ASSERT_EQ(*before, plan.to);
  EXPECT_NEAR(plan.cost_us, cost_us, 1e-9 * std::max(1.0, cost_us));
  EXPECT_EQ(plan.bytes, bytes);
  EXPECT_EQ(plan.total_bytes, total_bytes);
  EXPECT_EQ(plan.peak_bytes, peak_bytes);
}

// Of an all_reduce over `ranks`: each element but for its own share goes to the rank that combines it, and
// comes back.
int64_t sent_in_all_reduce(const Step& step) {
  int64_t ranks = 1;
  for (size_t m = 0; m < step.from.placements().size(); ++m) {
    if (!(step.from.placements()[m] == step.to.placements()[m])) ranks *= step.from.mesh().shape()[m];
  }
  int64_t elements = 0;
  for (const Box& box : reference_boxes(step.from)) elements += box.volume();
  return elements / ranks * 2 * (ranks - 1);
}

void expect_sends_what_it_says(const Step& step) {
  const int64_t item = item_bytes(step.from.dtype());
  EXPECT_EQ(step.kind == StepKind::slice, step.total_bytes == 0) << name_of(step.kind);
  if (step.kind == StepKind::all_reduce) {
    EXPECT_EQ(step.total_bytes, sent_in_all_reduce(step) * item);
    return;
  }
  const Sent sent = sent_by(routes_between(step.from, step.to));
  EXPECT_EQ(step.bytes, sent.most * item) << name_of(step.kind);
  EXPECT_EQ(step.total_bytes, sent.total * item) << name_of(step.kind);
}

// On one mesh, ranks that communicate differ in the step's mesh dims alone.
void expect_spans_its_mesh_dims(const Step& step) {
  if (!(step.from.mesh() == step.to.mesh())) return;
  const Mesh& mesh = step.from.mesh();
  for (const Route& route : routes_between(step.from, step.to)) {
    for (const Move& pull : route.pulls) {
      const Coordinate here = coordinate_of(mesh, *mesh.position_of(route.rank));
      const Coordinate there = coordinate_of(mesh, *mesh.position_of(pull.peer));
      for (size_t m = 0; m < here.size(); ++m) {
        const bool is_spanned = std::find(step.mesh_dims.begin(), step.mesh_dims.end(),
                                          static_cast<int64_t>(m)) != step.mesh_dims.end();
        EXPECT_TRUE(is_spanned || here[m] == there[m]) << name_of(step.kind) << " over mesh dim " << m;
      }
    }
  }
}

// Of steps that combine no addends: the plan's input, the step's own input where that is another, its output.
void expect_peak_of_boxes(const Plan& plan, const Step& step) {
  const auto holds_partial = [](const Layout& layout) {
    return std::any_of(layout.placements().begin(), layout.placements().end(),
                       [](const Placement& placement) { return placement.is_partial(); });
  };
  if (holds_partial(plan.from)) return;
  std::vector<int64_t> elements(static_cast<size_t>(ranks_of(plan.from, plan.to)), 0);
  const auto add = [&](const Layout& layout) {
    for (int64_t position = 0; position < layout.mesh().size(); ++position) {
      elements[static_cast<size_t>(layout.mesh().ranks()[static_cast<size_t>(position)])] +=
          reference_box(layout, position).volume();
    }
  };
  add(plan.from);
  if (!(step.from == plan.from)) add(step.from);
  add(step.to);
  const auto taking_part = [&](int64_t rank) {
    return step.from.mesh().position_of(rank) || step.to.mesh().position_of(rank);
  };
  int64_t most = 0;
  for (size_t rank = 0; rank < elements.size(); ++rank) {
    if (taking_part(static_cast<int64_t>(rank))) most = std::max(most, elements[rank]);
  }
  EXPECT_EQ(step.peak_bytes, most * item_bytes(plan.from.dtype())) << name_of(step.kind);
}

void expect_runs_to_its_target(const Plan& plan, Dice& dice) {
  const int64_t ranks = ranks_of(plan.from, plan.to);
  const Addends source = any_addends(plan.from, dice);
  std::vector<Dense> locals = locals_of(plan.from, source, ranks);
  for (const Step& step : plan.steps) locals = exchanged(step.from, step.to, locals);
  const std::vector<Dense> expected = locals_of(plan.to, combined(source, plan.from, plan.to), ranks);
  for (const int64_t rank : plan.to.mesh().ranks())
    ASSERT_EQ(locals.at(static_cast<size_t>(rank)), expected[static_cast<size_t>(rank)]) << "rank " << rank;
}

TEST(PlanSteps, OfThousandsOfRandomPairsLeadFromSourceToTarget) {
  Dice dice;
  std::set<StepKind> kinds;
  size_t longest = 0;
  for (int64_t i = 0; i < tries(10'000); ++i) {
    const LayoutPair pair = any_pair(dice);
    SCOPED_TRACE(text_of(pair));
    const auto plan = shardway::plan(pair.from, pair.to, {.topology = dice.any_of(kFewTopologies)});
    expect_chain(*plan);
    expect_runs_to_its_target(*plan, dice);
    for (const Step& step : plan->steps) {
      expect_sends_what_it_says(step);
      expect_spans_its_mesh_dims(step);
      expect_peak_of_boxes(*plan, step);
      kinds.insert(step.kind);
    }
    longest = std::max(longest, plan->steps.size());
    if (HasFailure()) return;
  }
  EXPECT_GE(kinds.size(), 6U) << "a kind of step never came";
  EXPECT_GE(longest, 3U);
}

Layout on(const Mesh& mesh, std::vector<Placement> placements) {
  return {{16, 16}, DType::f32, mesh, std::move(placements)};
}

StepKind kind_of_only_step(const Layout& from, std::vector<Placement> to, ShardOrder order = {}) {
  const auto plan =
      shardway::plan(from, from.with(std::move(to), std::move(order)), {.topology = Topology{}});
  EXPECT_EQ(plan->steps.size(), 1U) << plan->text();
  return plan->steps.at(0).kind;
}

TEST(PlanSteps, AreCalledByTheCollectiveThatTheyAre) {
  const Mesh mesh({4});
  EXPECT_EQ(kind_of_only_step(on(mesh, {shard(0)}), {replicate()}), StepKind::all_gather);
  EXPECT_EQ(kind_of_only_step(on(mesh, {partial()}), {shard(0)}), StepKind::reduce_scatter);
  const Layout large({1024, 1024}, DType::f32, mesh, {partial()});
  EXPECT_EQ(kind_of_only_step(large, {replicate()}), StepKind::all_reduce);
  EXPECT_EQ(kind_of_only_step(on(mesh, {shard(0)}), {shard(1)}), StepKind::all_to_all);
  EXPECT_EQ(kind_of_only_step(on(mesh, {replicate()}), {shard(1)}), StepKind::slice);
  const Layout both = on(Mesh({2, 2}), {shard(0), shard(0)});
  EXPECT_EQ(kind_of_only_step(both, {shard(0), shard(0)}, {{1, 0}, {}}), StepKind::permute);
}

TEST(PlanSteps, OverSeveralMeshDimsAreFusedAndPaidOnce) {
  const Mesh mesh({2, 2});
  const auto gather =
      plan(on(mesh, {shard(0), shard(0)}), on(mesh, {replicate(), replicate()}), {.topology = Topology{}});
  ASSERT_EQ(gather->steps.size(), 1U) << gather->text();
  EXPECT_EQ(gather->steps[0].mesh_dims, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(gather->text(), "S0,S0 -all_gather(0,1)-> R,R");
  // 3 peers, 3/4 of 1024 bytes
  EXPECT_NEAR(gather->cost_us, 6.6 + 3 * 0.6 + 768 / (87.7 * 1024 * 1024 * 1024) * 1e6, 1e-9);
}

// 1 MiB over 4 ranks: 3 messages of a quarter each way in each of two phases.
TEST(PlanSteps, AnAllReduceIsTwoPhasesWithOneBase) {
  const Layout from({512, 512}, DType::f32, Mesh({4}), {partial()});
  const auto reduce = plan(from, from.with({replicate()}), {.topology = Topology{}});
  ASSERT_EQ(reduce->steps.size(), 1U);
  const int64_t bytes = 3 * (int64_t{1} << 20U) / 4;
  EXPECT_NEAR(reduce->cost_us,
              6.6 + 2 * (3 * 0.6 + static_cast<double>(bytes) / (87.7 * 1024 * 1024 * 1024) * 1e6), 1e-9);
  EXPECT_EQ(reduce->bytes, 2 * bytes);
  EXPECT_EQ(reduce->total_bytes, 4 * 2 * bytes);
}

// 1 KiB over 4 ranks: a second phase would cost more than the bytes that it saves.
TEST(PlanSteps, FewAddendsAreCombinedOnEveryRankInOnePhase) {
  const auto reduce =
      plan(on(Mesh({4}), {partial()}), on(Mesh({4}), {replicate()}), {.topology = Topology{}});
  ASSERT_EQ(reduce->steps.size(), 1U);
  EXPECT_EQ(reduce->steps[0].kind, StepKind::exchange);
  EXPECT_NEAR(reduce->cost_us, 6.6 + 3 * 0.6 + 3 * 1024 / (87.7 * 1024 * 1024 * 1024) * 1e6, 1e-9);
}

TEST(PlanSteps, BetweenMeshesAreAnExchangeThatMayComeAfterOthers) {
  const Layout from = on(Mesh({2}), {shard(0)});
  const Layout to = from.with(Mesh({2}, {2, 3}, {}), {shard(0)});
  const auto moved = plan(from, to, {.topology = Topology{}});
  ASSERT_EQ(moved->steps.size(), 1U);
  EXPECT_EQ(moved->steps[0].kind, StepKind::exchange);
  EXPECT_NEAR(moved->cost_us, 6.6 + 0.6 + 512 / (87.7 * 1024 * 1024 * 1024) * 1e6, 1e-9);
}

// A Partial is combined on its own mesh or on the way to the other, and paid for in both cases.
TEST(PlanSteps, AddendsDoNotCombineByCrossingToAnotherMesh) {
  const Layout from({4}, DType::f32, Mesh({3, 1}), {replicate(), partial(Op::max)});
  const auto plan = shardway::plan(from, from.with(Mesh({2, 3, 1}), {replicate(), replicate(), replicate()}),
                                   {.topology = Topology{}});
  EXPECT_GE(plan->cost_us, 7.2) << plan->text();
}

// One of four ranks wants the product of 384 bytes. Pulling three addends takes 3 · 384 bytes; an all_reduce
// takes 1.5 · 384 each way, and then the rank has it.
TEST(PlanSteps, ToAMeshWhoseRanksHoldTheirBoxesNothingMoves) {
  const Layout from({4, 4, 6}, DType::f32, Mesh({4}), {partial(Op::product)});
  const Link link{.latency_us = 0, .gib_per_s = 1};
  const Topology topology{.base_us = 16, .within_host = link, .between_hosts = link};
  const auto reduced = plan(from, from.with(Mesh({1}, {2}, {}), {replicate()}), {.topology = topology});
  EXPECT_NEAR(reduced->cost_us, 16 + 1.5 * 384 / (1024.0 * 1024 * 1024) * 1e6, 1e-8) << reduced->text();
}

}  // namespace
}  // namespace shardway::testing
