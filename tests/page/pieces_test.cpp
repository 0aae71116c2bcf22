#include "page/pieces.h"

#include <gtest/gtest.h>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "page/words.h"

namespace shardway::testing {
namespace {

TEST(Pieces, CoverWhatARankHoldsAfterwards) {
  Dice dice;
  for (int64_t i = 0; i < tries(300); ++i) {
    const LayoutPair pair = any_pair(dice);
    SCOPED_TRACE(text_of(pair));
    const auto best = plan(pair.from, pair.to, {.topology = Topology{}});
    for (const Step& step : best->steps) {
      for (int64_t position = 0; position < step.to.mesh().size(); ++position) {
        const Box home = step.to.box_at(position);
        const int64_t rank = step.to.mesh().ranks()[static_cast<size_t>(position)];
        int64_t volume = 0;
        for (const page::TakenBox& part :
             page::taken_boxes(step, redistribution_route(step.from, step.to, rank))) {
          EXPECT_TRUE(contains(home, part.box));
          volume += part.box.volume();
        }
        EXPECT_TRUE(home.volume() == 0 ? volume == 0
                                       : volume >= home.volume() && volume % home.volume() == 0);
      }
    }
  }
}

// The planner's own counts of what a rank sends and receives, which know nothing of pairs.
TEST(Flows, AddUpToWhatEachRankSendsAndReceives) {
  Dice dice;
  for (int64_t i = 0; i < tries(300); ++i) {
    const LayoutPair pair = any_pair(dice);
    SCOPED_TRACE(text_of(pair));
    const auto best = plan(pair.from, pair.to, {.topology = Topology{}});
    const page::PlanScene all = page::plan_scene_of(*best, page::Frame(*best), Topology{});
    if (all.tiling.is_grouped()) continue;
    for (const page::StepScene& scene : all.scenes) {
      std::vector<int64_t> sent(all.tiling.tiles.size());
      std::vector<int64_t> received(all.tiling.tiles.size());
      for (const page::TileFlow& flow : scene.flows) {
        EXPECT_NE(flow.from, flow.to);
        sent[static_cast<size_t>(flow.from)] += flow.bytes;
        received[static_cast<size_t>(flow.to)] += flow.bytes;
      }
      for (size_t tile = 0; tile < scene.traffic.size(); ++tile) {
        EXPECT_EQ(sent[tile], scene.traffic[tile].sent_bytes);
        EXPECT_EQ(received[tile], scene.traffic[tile].received_bytes);
      }
    }
  }
}

TEST(Flows, OfAnAllReduceAreAddendsAndShares) {
  const Layout addends({1 << 20}, DType::f32, Mesh({4}), {partial()});
  const auto best = plan(addends, addends.with({replicate()}), {.topology = Topology{}});
  ASSERT_EQ(best->steps.size(), 1U);
  ASSERT_EQ(best->steps[0].kind, StepKind::all_reduce);
  const page::PlanScene all = page::plan_scene_of(*best, page::Frame(*best), Topology{});
  EXPECT_EQ(all.scenes[0].flows.size(), 12U);
  for (const page::TileFlow& flow : all.scenes[0].flows) EXPECT_EQ(flow.bytes, 2 << 20);
}

TEST(Words, SayWhatEachMeshDimDoes) {
  const Mesh mesh({2, 4}, {"dp", "tp"});
  const Layout layout({8, 8}, DType::f32, mesh, {shard(0), partial()});
  EXPECT_EQ(page::words_of(layout), "dim 0 split over dp, addends over tp");
  EXPECT_EQ(page::words_of(layout.with({replicate(), shard(1)})), "the same over dp, dim 1 split over tp");
  EXPECT_EQ(page::words_of(layout.with({replicate(), replicate()})), "the same on every rank");
  const Layout line({8}, DType::f32, Mesh({2}), {shard(0, {3, 5})});
  EXPECT_EQ(page::words_of(line), "dim 0 split over the ranks in given lengths");
  const Layout grid({8}, DType::f32, Mesh({2, 2}), {partial(Op::max), shard(0)});
  EXPECT_EQ(page::words_of(grid), "values to combine by max over mesh dim 0, dim 0 split over mesh dim 1");
}

}  // namespace
}  // namespace shardway::testing
