#include "page/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "arbitrary_layouts.h"
#include "effort.h"

namespace shardway::testing {
namespace {

using page::Traffic;

std::set<int64_t> ranks_of(const Step& step) {
  std::set<int64_t> ranks(step.from.mesh().ranks().begin(), step.from.mesh().ranks().end());
  ranks.insert(step.to.mesh().ranks().begin(), step.to.mesh().ranks().end());
  return ranks;
}

// The planner counts without routes; here every rank's route is followed.
TEST(Traffic, AddsUpToTheStepsFigures) {
  Dice dice;
  for (int64_t i = 0; i < tries(500); ++i) {
    const LayoutPair pair = any_pair(dice);
    SCOPED_TRACE(text_of(pair));
    Topology topology = any_topology(dice, 40);
    topology.copy_gib_per_s = topology.reduce_gib_per_s = 0;
    const auto best = plan(pair.from, pair.to, {.topology = topology});
    for (const Step& step : best->steps) {
      double us = 0;
      int64_t most_sent = 0;
      int64_t sent = 0;
      int64_t received = 0;
      for (const int64_t rank : ranks_of(step)) {
        const Traffic traffic = page::traffic_of(step, rank, topology);
        us = std::max(us, traffic.us);
        most_sent = std::max(most_sent, traffic.sent);
        sent += traffic.sent;
        received += traffic.received;
      }
      EXPECT_NEAR(us, step.cost_us, 1e-6 * std::max(1.0, step.cost_us)) << name_of(step.kind);
      EXPECT_EQ(most_sent, step.bytes) << name_of(step.kind);
      EXPECT_EQ(sent, step.total_bytes) << name_of(step.kind);
      EXPECT_EQ(received, step.total_bytes) << name_of(step.kind);
    }
  }
}

TEST(Traffic, PullsCoverWhatARankHoldsAfterwards) {
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
        for (const page::Pull& pull : page::traffic_of(step, rank, Topology{}).pulls) {
          EXPECT_TRUE(contains(home, pull.box));
          volume += pull.box.volume();
        }
        EXPECT_TRUE(home.volume() == 0 ? volume == 0
                                       : volume >= home.volume() && volume % home.volume() == 0);
      }
    }
  }
}

}  // namespace
}  // namespace shardway::testing
