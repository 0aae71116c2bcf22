#include "page/pieces.h"

#include <gtest/gtest.h>

#include "arbitrary_layouts.h"
#include "effort.h"

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

}  // namespace
}  // namespace shardway::testing
