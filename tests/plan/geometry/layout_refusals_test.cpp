#include <gtest/gtest.h>

#include "refusal.h"
#include "shardway/layout.h"

namespace shardway::testing {
namespace {

using Numbers = std::vector<int64_t>;

// The refusal of a 4×6 f32 tensor on a 2×3 mesh.
template <class... Words>
::testing::AssertionResult refused(const std::vector<Placement>& placements, const Words&... words) {
  return refuses_with([&] { Layout({4, 6}, DType::f32, Mesh({2, 3}), placements); }, words...);
}

TEST(LayoutRefuses, AShardOfADimThatTheTensorDoesNotHave) {
  EXPECT_TRUE(refused({shard(2), replicate()}, "S2", "mesh dim 0", "2-d"));
  EXPECT_TRUE(refused({replicate(), shard(-1)}, "-1", "mesh dim 1", "2-d"));
  EXPECT_TRUE(refuses_with([] { Layout({}, DType::f32, Mesh({2}), {shard(0)}); }, "S0", "0-d"));
}

TEST(LayoutRefuses, AnotherNumberOfPlacementsThanMeshDims) {
  EXPECT_TRUE(refused({shard(0)}, "1 placements", "2-d mesh"));
  EXPECT_TRUE(refused({shard(0), shard(1), replicate()}, "3 placements", "2-d mesh"));
  EXPECT_TRUE(refused({}, "0 placements", "2-d mesh"));
}

TEST(LayoutRefuses, SizesThatDoNotAddUp) {
  EXPECT_TRUE(refused({shard(0, {3, 2}), replicate()}, "S0[3,2]", "mesh dim 0", "add up to 5", "length 4"));
  EXPECT_TRUE(refused({replicate(), shard(1, {0, 0, 0})}, "add up to 0", "length 6"));
}

TEST(LayoutRefuses, AnotherNumberOfSizesThanRanks) {
  EXPECT_TRUE(refused({shard(0, {4}), replicate()}, "1 sizes", "2 ranks"));
  EXPECT_TRUE(refused({replicate(), shard(1, {3, 3})}, "2 sizes", "3 ranks"));
}

TEST(LayoutRefuses, NegativeAndOverflowingSizes) {
  EXPECT_TRUE(refused({shard(0, {5, -1}), replicate()}, "-1"));
  EXPECT_TRUE(refused({shard(0, {INT64_MAX, INT64_MAX}), replicate()}, std::to_string(INT64_MAX)));
}

TEST(LayoutRefuses, NegativeLengths) {
  EXPECT_TRUE(refuses_with([] { Layout({4, -6}, DType::f32, Mesh({1}), {replicate()}); }, "dim 1", "-6"));
}

TEST(LayoutRefuses, ARaggedShardInsideAnother) {
  EXPECT_TRUE(refused({shard(1), shard(1, {1, 2, 3})}, "S1[1,2,3]", "mesh dim 1", "outermost"));
  EXPECT_TRUE(refuses_with(
      [] {
        Layout({6}, DType::f32, Mesh({2, 3}), {shard(0, {5, 1}), shard(0)}, {{1, 0}});
      },
      "mesh dim 0", "outermost"));
  EXPECT_TRUE(refused({shard(1, {1, 5}), shard(1, {1, 2, 3})}, "mesh dim 1", "outermost"));
}

TEST(LayoutRefuses, AveragesOfIntegers) {
  for (const DType dtype : {DType::i64, DType::i32, DType::u8, DType::boolean}) {
    EXPECT_TRUE(refuses_with([&] { Layout({4}, dtype, Mesh({2}), {partial(Op::avg)}); }, "P(avg)",
                             name_of(dtype), "mesh dim 0"));
    Layout({4}, dtype, Mesh({2}), {partial(Op::sum)});
  }
}

TEST(LayoutRefuses, MixedPartialOpsExceptSumWithAvg) {
  const std::vector<Op> ops{Op::sum, Op::avg, Op::min, Op::max, Op::product};
  for (const Op a : ops) {
    for (const Op b : ops) {
      const bool may_mix = a == b || (a == Op::sum && b == Op::avg) || (a == Op::avg && b == Op::sum);
      const auto make = [&] { Layout({4}, DType::f32, Mesh({2, 2}), {partial(a), partial(b)}); };
      if (may_mix) {
        EXPECT_EQ(refusal_of(make), "") << name_of(a) << " with " << name_of(b);
      } else {
        EXPECT_TRUE(refuses_with(make, name_of(a), name_of(b)));
      }
    }
  }
}

TEST(LayoutRefuses, AThirdPartialThatDoesNotMixWithTheFirstTwo) {
  EXPECT_TRUE(refuses_with(
      [] {
        Layout({4}, DType::f32, Mesh({2, 2, 2}), {partial(Op::avg), partial(), partial(Op::max)});
      },
      "max"));
}

TEST(LayoutRefuses, HugeShapes) {
  EXPECT_TRUE(refuses_with([] { Layout({INT64_MAX}, DType::f32, Mesh({2}), {shard(0)}); }, "more than"));
  const int64_t large = int64_t{1} << 31;
  EXPECT_TRUE(refuses_with(
      [&] {
        Layout({large, large, large}, DType::f32, Mesh({2}), {shard(0)});
      },
      "2147483648x2147483648x2147483648", "more than"));
  EXPECT_TRUE(refuses_with(
      [&] {
        Layout({0, large, large, large}, DType::f32, Mesh({2}), {shard(0)});
      },
      "more than"));
}

TEST(LayoutRefuses, AShardOrderThatIsNotOfItsPlacements) {
  const auto with_order = [](const ShardOrder& order) {
    return [order] { Layout({4, 6}, DType::f32, Mesh({2, 3}), {shard(0), shard(0)}, order); };
  };
  EXPECT_EQ(refusal_of(with_order({{1, 0}, {}})), "");
  EXPECT_TRUE(refuses_with(with_order({{1, 0}}), "1 entries", "2-d"));
  EXPECT_TRUE(refuses_with(with_order({{0}, {1}}), "dim 0", "[0]", "[0,1]"));
  EXPECT_TRUE(refuses_with(with_order({{0, 0}, {}}), "dim 0", "[0,0]"));
  EXPECT_TRUE(refuses_with(with_order({{0, 1}, {2}}), "dim 1", "[2]"));
  EXPECT_TRUE(refuses_with(with_order({{0, 1, -1}, {}}), "dim 0", "-1"));
}

TEST(LayoutRefuses, UnknownNamesOfDtypesAndOps) {
  EXPECT_TRUE(refuses_with([] { dtype_from_name("float33"); }, "float33", "f32"));
  EXPECT_TRUE(refuses_with([] { dtype_from_name(""); }, "''"));
}

}  // namespace
}  // namespace shardway::testing
