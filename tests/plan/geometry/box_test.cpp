#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "arbitrary_routes.h"
#include "rank_simulator.h"
#include "shardway/route.h"

namespace shardway::testing {
namespace {

TEST(Box, WholeStartsAtTheOriginAndHasTheShape) {
  EXPECT_EQ(Box::whole({2, 3}), (Box{.offset = {0, 0}, .extent = {2, 3}}));
}

TEST(Box, OfNoDimsHoldsOneElement) {
  EXPECT_EQ(Box::whole({}).volume(), 1);
  EXPECT_TRUE(overlap(Box::whole({}), Box::whole({})));
  EXPECT_TRUE(contains(Box::whole({}), Box::whole({})));
}

TEST(Box, VolumeCountsPast32Bits) { EXPECT_EQ(Box::whole({1 << 20, 1 << 20}).volume(), int64_t{1} << 40); }

TEST(Box, BoxesThatOnlyTouchDoNotOverlap) {
  EXPECT_FALSE(overlap({.offset = {0}, .extent = {2}}, {.offset = {2}, .extent = {3}}));
  EXPECT_TRUE(overlap({.offset = {0}, .extent = {3}}, {.offset = {2}, .extent = {3}}));
}

TEST(Box, AnEmptyBoxOverlapsNothing) {
  EXPECT_FALSE(overlap({.offset = {1, 1}, .extent = {0, 2}}, Box::whole({4, 4})));
  EXPECT_FALSE(overlap(Box::whole({4, 4}), {.offset = {1, 1}, .extent = {2, 0}}));
}

TEST(Box, IsWrittenAsHalfOpenIntervals) {
  EXPECT_EQ(to_string(Box{.offset = {1, 0}, .extent = {2, 5}}), "[1,3)×[0,5)");
  EXPECT_EQ(to_string(Box{.offset = {7}, .extent = {0}}), "[7,7)");
}

RC_GTEST_PROP(Box, VolumeIsTheNumberOfElements, ()) {
  const Box box = any_box_within(any_shape(any_between(1, 4), 4));
  RC_ASSERT(box.volume() == static_cast<int64_t>(indices_of(box).size()));
}

RC_GTEST_PROP(Box, OverlapIsAnElementInBoth, ()) {
  const Shape shape = any_shape(any_between(1, 4), 4);
  const Box a = any_box_within(shape);
  const Box b = any_box_within(shape);
  const std::vector<Index> elements = indices_of(a);
  const bool shared =
      std::any_of(elements.begin(), elements.end(), [&](const Index& i) { return is_inside(i, b); });
  RC_ASSERT(overlap(a, b) == shared);
  RC_ASSERT(overlap(b, a) == shared);
}

RC_GTEST_PROP(Box, ContainsIsEveryElementInside, ()) {
  const Shape shape = any_shape(any_between(1, 4), 4);
  const Box outer = any_box_within(shape);
  const Box inner = any_box_within(shape);
  RC_PRE(inner.volume() > 0);
  const std::vector<Index> elements = indices_of(inner);
  const bool inside =
      std::all_of(elements.begin(), elements.end(), [&](const Index& i) { return is_inside(i, outer); });
  RC_ASSERT(contains(outer, inner) == inside);
}

RC_GTEST_PROP(Box, WholeContainsEveryBoxWithin, ()) {
  const Shape shape = any_shape(any_between(1, 4), 4);
  RC_ASSERT(contains(Box::whole(shape), any_box_within(shape)));
}

}  // namespace
}  // namespace shardway::testing
