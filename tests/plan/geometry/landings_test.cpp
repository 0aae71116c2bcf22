#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "arbitrary_routes.h"
#include "rank_simulator.h"
#include "shardway/route.h"

namespace shardway::testing {
namespace {

// The element of its own box that a pull puts on `index` of the output.
Index within(const Box& box, Index index) {
  for (size_t d = 0; d < index.size(); ++d) index[d] -= box.offset[d];
  return index;
}

// The same, as a landing says it.
Index source_of(const Landing& landing, const Addend& addend, Index index) {
  for (size_t d = 0; d < index.size(); ++d) index[d] += addend.from.offset[d] - landing.box.offset[d];
  return index;
}

// Looks at every element of the output: which landing holds it, and from where it says the addends come.
void assert_landings_say_what_the_pulls_do(const Route& route) {
  const std::vector<Landing> parts = landings(route);
  for (const Landing& part : parts) {
    RC_ASSERT(part.box.volume() > 0);
    for (const Addend& addend : part.addends) RC_ASSERT(addend.from.extent == part.box.extent);
  }
  for (const Index& index : indices_of(Box::whole(route.output_shape))) {
    std::vector<const Landing*> here;
    for (const Landing& part : parts) {
      if (is_inside(index, part.box)) here.push_back(&part);
    }
    std::vector<size_t> pulls;
    for (size_t i = 0; i < route.pulls.size(); ++i) {
      if (is_inside(index, route.pulls[i].mine)) pulls.push_back(i);
    }
    RC_ASSERT(here.size() == (pulls.empty() ? 0U : 1U));
    if (pulls.empty()) continue;
    const std::vector<Addend>& addends = here[0]->addends;
    RC_ASSERT(addends.size() == pulls.size());
    for (size_t k = 0; k < pulls.size(); ++k) {
      RC_ASSERT(addends[k].pull == static_cast<int64_t>(pulls[k]));
      RC_ASSERT(source_of(*here[0], addends[k], index) == within(route.pulls[pulls[k]].mine, index));
    }
  }
}

RC_GTEST_PROP(Landings, AreDisjointAndSayForEveryElementWhichPullsLandInRankOrder, ()) {
  for (const Route& route : any_routes()) assert_landings_say_what_the_pulls_do(route);
}

// Few dims and many large pulls, so that most overlap in part.
RC_GTEST_PROP(Landings, CutPullsThatOverlapInPart, ()) {
  Route route{.rank = 0, .size = 5, .output_shape = any_shape(any_between(1, 3), 6)};
  for (int64_t peer = 0; peer < 5; ++peer) {
    for (int64_t k = any_between(0, 2); k > 0; --k) {
      const Box box = any_box_within(route.output_shape);
      route.pulls.push_back({.peer = peer, .mine = box, .theirs = Box::whole(box.extent)});
    }
  }
  assert_landings_say_what_the_pulls_do(route);
}

RC_GTEST_PROP(Landings, FillTheOutputIfEveryElementIsWritten, ()) {
  for (const Route& route : any_routes()) {
    const std::vector<Index> elements = indices_of(Box::whole(route.output_shape));
    const bool filled = std::all_of(elements.begin(), elements.end(), [&](const Index& index) {
      return std::any_of(route.pulls.begin(), route.pulls.end(),
                         [&](const Move& m) { return is_inside(index, m.mine); });
    });
    RC_ASSERT(fills_output(landings(route), route) == filled);
  }
}

Route of_pulls(const Shape& shape, const std::vector<Box>& boxes) {
  Route route{.rank = 0, .size = static_cast<int64_t>(boxes.size()), .output_shape = shape};
  for (size_t peer = 0; peer < boxes.size(); ++peer) {
    route.pulls.push_back(
        {.peer = static_cast<int64_t>(peer), .mine = boxes[peer], .theirs = Box::whole(boxes[peer].extent)});
  }
  return route;
}

// The worked example of landings().
TEST(Landings, OfTwoIntervalsThatOverlapInPartAreThree) {
  const std::vector<Landing> parts = landings(of_pulls({3}, {{{0}, {2}}, {{1}, {2}}}));
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].box, (Box{{0}, {1}}));
  ASSERT_EQ(parts[0].addends.size(), 1U);
  EXPECT_EQ(parts[0].addends[0].pull, 0);
  EXPECT_EQ(parts[1].box, (Box{{1}, {1}}));
  ASSERT_EQ(parts[1].addends.size(), 2U);
  EXPECT_EQ(parts[1].addends[0].pull, 0);
  EXPECT_EQ(parts[1].addends[0].from, (Box{{1}, {1}}));
  EXPECT_EQ(parts[1].addends[1].pull, 1);
  EXPECT_EQ(parts[1].addends[1].from, (Box{{0}, {1}}));
  EXPECT_EQ(parts[2].box, (Box{{2}, {1}}));
  ASSERT_EQ(parts[2].addends.size(), 1U);
  EXPECT_EQ(parts[2].addends[0].pull, 1);
  EXPECT_EQ(parts[2].addends[0].from, (Box{{1}, {1}}));
}

TEST(Landings, PullsWithTheSameBoxStayWhole) {
  const std::vector<Landing> parts =
      landings(of_pulls({4, 2}, {{{0, 0}, {4, 2}}, {{0, 0}, {4, 2}}, {{0, 0}, {4, 2}}}));
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].addends.size(), 3U);
}

TEST(Landings, BoxesApartAreNotCut) {
  EXPECT_EQ(landings(of_pulls({4, 4}, {{{0, 0}, {2, 3}}, {{2, 1}, {2, 3}}, {{0, 3}, {2, 1}}})).size(), 3U);
}

TEST(Landings, OfARouteWithoutPullsAreNone) {
  const Route route = of_pulls({3}, {});
  EXPECT_TRUE(landings(route).empty());
  EXPECT_FALSE(fills_output({}, route));
  EXPECT_FALSE(reduces({}, route));
}

TEST(Landings, OfNoDimsAreOne) {
  const std::vector<Landing> parts = landings(of_pulls({}, {{{}, {}}, {{}, {}}}));
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].addends.size(), 2U);
}

TEST(Landings, ADivisorIsAReduction) {
  Route route = of_pulls({2}, {{{0}, {2}}});
  EXPECT_FALSE(reduces(landings(route), route));
  route.divisor = 2;
  EXPECT_TRUE(reduces(landings(route), route));
}

}  // namespace
}  // namespace shardway::testing
