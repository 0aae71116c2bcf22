#include "shardway/layout.h"

#include <gtest/gtest.h>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "layout_reference.h"

namespace shardway::testing {
namespace {

using Numbers = std::vector<int64_t>;

Numbers lengths_of(const Layout& layout, size_t dim = 0) {
  Numbers lengths;
  for (int64_t position = 0; position < layout.mesh().size(); ++position)
    lengths.push_back(layout.box_at(position).extent[dim]);
  return lengths;
}

Numbers offsets_of(const Layout& layout, size_t dim = 0) {
  Numbers offsets;
  for (int64_t position = 0; position < layout.mesh().size(); ++position)
    offsets.push_back(layout.box_at(position).offset[dim]);
  return offsets;
}

Layout line(int64_t length, const Mesh& mesh, std::vector<Placement> placements, ShardOrder order = {}) {
  return {{length}, DType::f32, mesh, std::move(placements), std::move(order)};
}

// Where nothing is held along a dim, where that nothing lies does not matter.
void expect_reference_boxes(const Layout& layout) {
  for (int64_t position = 0; position < layout.mesh().size(); ++position) {
    const Box box = layout.box_at(position);
    const Box expected = reference_box(layout, position);
    ASSERT_EQ(box.extent, expected.extent) << to_string(layout) << ", position " << position;
    for (size_t d = 0; d < box.extent.size(); ++d) {
      if (box.extent[d] > 0) {
        ASSERT_EQ(box.offset[d], expected.offset[d]) << to_string(layout) << ", position " << position;
      } else {
        ASSERT_TRUE(box.offset[d] >= 0 && box.offset[d] <= layout.shape()[d]) << to_string(layout);
      }
    }
  }
}

TEST(LayoutBoxes, AreTorchChunksForAllLengthsAndRanks) {
  for (int64_t length = 0; length <= 20; ++length) {
    for (int64_t ranks = 1; ranks <= 9; ++ranks)
      expect_reference_boxes(line(length, Mesh({ranks}), {shard(0)}));
  }
}

TEST(LayoutBoxes, AreTorchChunksOfChunksForAllLengthsAndBothOrders) {
  for (const Mesh& mesh : {Mesh({2, 2}), Mesh({2, 3}), Mesh({3, 2}), Mesh({4, 3}), Mesh({1, 5})}) {
    for (int64_t length = 0; length <= 26; ++length) {
      expect_reference_boxes(line(length, mesh, {shard(0), shard(0)}));
      expect_reference_boxes(line(length, mesh, {shard(0), shard(0)}, {{1, 0}}));
    }
  }
}

TEST(LayoutBoxes, AreTorchChunksForThreeMeshDimsInEveryOrder) {
  Numbers order{0, 1, 2};
  do {
    for (int64_t length = 0; length <= 30; ++length)
      expect_reference_boxes(line(length, Mesh({2, 3, 2}), {shard(0), shard(0), shard(0)}, {order}));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(LayoutBoxes, AreTorchChunksForThousandsOfRandomLayouts) {
  Dice dice;
  for (int64_t i = 0; i < tries(4000); ++i) {
    const Mesh mesh = any_mesh(dice, 24);
    const std::vector<int64_t> shape = any_tensor_shape(dice, 12);
    expect_reference_boxes(any_layout(dice, shape, mesh, true));
    if (HasFatalFailure()) return;
  }
}

// mission.md: mesh 2×3, length 4, S0,S0.
TEST(LayoutBoxes, LeaveEveryThirdRankEmptyWhenFourElementsLieOnTwoTimesThree) {
  EXPECT_EQ(lengths_of(line(4, Mesh({2, 3}), {shard(0), shard(0)})), (Numbers{1, 1, 0, 1, 1, 0}));
}

// The worked example of class Layout.
TEST(LayoutBoxes, FiveElementsOnTwoByTwoInEitherOrder) {
  const Layout ascending = line(5, Mesh({2, 2}), {shard(0), shard(0)});
  EXPECT_EQ(lengths_of(ascending), (Numbers{2, 1, 1, 1}));
  EXPECT_EQ(offsets_of(ascending), (Numbers{0, 2, 3, 4}));
  const Layout other = line(5, Mesh({2, 2}), {shard(0), shard(0)}, {{1, 0}});
  EXPECT_EQ(lengths_of(other), (Numbers{2, 1, 1, 1}));
  EXPECT_EQ(offsets_of(other), (Numbers{0, 3, 2, 4}));
}

TEST(LayoutBoxes, ReplicasAndAddendsHoldTheWholeTensor) {
  const Layout layout({3, 4}, DType::f32, Mesh({2, 2}), {replicate(), partial()});
  for (int64_t position = 0; position < 4; ++position) EXPECT_EQ(layout.box_at(position), Box::whole({3, 4}));
}

TEST(LayoutBoxes, ARaggedShardIsSplitFurtherAsTorchChunkDoes) {
  const Layout layout = line(9, Mesh({2, 3}), {shard(0, {7, 2}), shard(0)});
  EXPECT_EQ(lengths_of(layout), (Numbers{3, 3, 1, 1, 1, 0}));
  EXPECT_EQ(offsets_of(layout), (Numbers{0, 3, 6, 7, 8, 9}));
}

TEST(LayoutBoxes, TheInnerMeshDimMayBeTheRaggedOutermost) {
  const Layout layout = line(9, Mesh({2, 3}), {shard(0), shard(0, {4, 0, 5})}, {{1, 0}});
  EXPECT_EQ(lengths_of(layout), (Numbers{2, 0, 3, 2, 0, 2}));
  EXPECT_EQ(offsets_of(layout), (Numbers{0, 4, 4, 2, 4, 7}));
}

TEST(LayoutBoxes, ATensorWithoutElementsOrDimsLiesAnywhere) {
  EXPECT_EQ(lengths_of(line(0, Mesh({3}), {shard(0)})), (Numbers{0, 0, 0}));
  const Layout scalar({}, DType::f32, Mesh({2}), {partial()});
  EXPECT_EQ(scalar.box_at(1), Box::whole({}));
  EXPECT_EQ(scalar.box_at(1).volume(), 1);
}

TEST(LayoutBoxes, ShardsCoverEveryElementExactlyOnceWhenNoDimReplicates) {
  Dice dice;
  for (int i = 0; i < 500; ++i) {
    const Mesh mesh = any_mesh(dice);
    std::vector<Placement> placements;
    for (int64_t m = 0; m < mesh.ndim(); ++m)
      placements.push_back(shard(dice.between(int64_t{0}, int64_t{1})));
    const Layout layout({dice.between(int64_t{0}, int64_t{9}), 5}, DType::f32, mesh, placements);
    Dense held = Dense::filled(layout.shape(), 0);
    for (int64_t position = 0; position < mesh.size(); ++position) {
      for (const Index& index : indices_of(layout.box_at(position))) ++held.at(index);
    }
    EXPECT_EQ(held, Dense::filled(layout.shape(), 1)) << to_string(layout);
  }
}

TEST(LayoutEquality, IsOfBoxesNotOfNames) {
  const Layout layout({4, 4}, DType::f32, Mesh({2, 2}, {"dp", "tp"}), {shard(0), shard(0)});
  const Layout unnamed({4, 4}, DType::f32, Mesh({2, 2}), {shard(0), shard(0)}, {{0, 1}, {}});
  EXPECT_EQ(layout, unnamed);
  EXPECT_EQ(layout.hash(), unnamed.hash());
  EXPECT_EQ(layout.order(), (ShardOrder{{0, 1}, {}}));
  EXPECT_TRUE(layout.has_default_order());
}

TEST(LayoutEquality, EveryFieldCounts) {
  const Mesh mesh({2, 2});
  const Layout layout({4, 4}, DType::f32, mesh, {shard(0), shard(0)});
  const std::vector<Layout> others{
      {{4, 5}, DType::f32, mesh, {shard(0), shard(0)}},
      {{4, 4}, DType::i32, mesh, {shard(0), shard(0)}},
      {{4, 4}, DType::f32, Mesh({2, 2}, {3, 2, 1, 0}, {}), {shard(0), shard(0)}},
      {{4, 4}, DType::f32, mesh, {shard(0), shard(1)}},
      {{4, 4}, DType::f32, mesh, {shard(0), shard(0)}, {{1, 0}, {}}},
      {{4, 4}, DType::f32, mesh, {shard(0, {2, 2}), shard(0)}},
      {{4, 4}, DType::f32, mesh, {shard(0), replicate()}},
      {{4, 4}, DType::f32, mesh, {shard(0), partial()}},
      {{4, 4}, DType::f32, mesh, {shard(0), partial(Op::max)}},
  };
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_FALSE(layout == others[i]) << to_string(others[i]);
    EXPECT_NE(layout.hash(), others[i].hash()) << to_string(others[i]);
    for (size_t k = 0; k < i; ++k) EXPECT_FALSE(others[k] == others[i]) << to_string(others[i]);
  }
}

TEST(LayoutEquality, AnotherPlacementOfTheSameTensorKeepsShapeDtypeAndMesh) {
  const Layout layout({4, 4}, DType::bf16, Mesh({2}), {shard(0)});
  EXPECT_EQ(layout.with({shard(1)}), Layout({4, 4}, DType::bf16, Mesh({2}), {shard(1)}));
  EXPECT_EQ(layout.with(Mesh({2, 2}), {shard(1), replicate()}),
            Layout({4, 4}, DType::bf16, Mesh({2, 2}), {shard(1), replicate()}));
}

TEST(LayoutText, SaysPlacementsAndWhereTheOrderIsNotAscending) {
  EXPECT_EQ(to_string(shard(2)), "S2");
  EXPECT_EQ(to_string(shard(0, {3, 0, 5})), "S0[3,0,5]");
  EXPECT_EQ(to_string(replicate()), "R");
  EXPECT_EQ(to_string(partial()), "P");
  EXPECT_EQ(to_string(partial(Op::max)), "P(max)");
  EXPECT_EQ(to_string(partial(Op::avg)), "P(avg)");
  const Layout layout({4096, 4096}, DType::f32, Mesh({2, 4}, {"dp", "tp"}), {shard(0), partial()});
  EXPECT_EQ(to_string(layout), "f32[4096,4096] on dp=2,tp=4: S0,P");
  EXPECT_EQ(placements_text(layout.with({shard(0), shard(0)})), "S0,S0");
  EXPECT_EQ(placements_text(layout.with({shard(0), shard(0)}, {{1, 0}, {}})), "S0.1,S0.0");
}

TEST(LayoutText, TellsApartAllLayoutsOfATensorOnAMesh) {
  Dice dice;
  std::map<std::string, Layout> known;
  for (int i = 0; i < 3000; ++i) {
    const Layout layout = any_layout(dice, {4, 3}, Mesh({2, 2, 2}), true);
    const auto [entry, is_new] = known.try_emplace(placements_text(layout), layout);
    ASSERT_EQ(entry->second, layout);
  }
  EXPECT_GT(known.size(), 500U);
}

TEST(DTypes, HaveTorchsSizesAndAreFoundByName) {
  const std::map<std::string, int64_t> bytes{
      {"boolean", 1}, {"u8", 1},   {"i8", 1},  {"i16", 2}, {"i32", 4}, {"i64", 8}, {"f8_e4m3fn", 1},
      {"f16", 2},     {"bf16", 2}, {"f32", 4}, {"f64", 8}, {"c32", 4}, {"c64", 8}, {"c128", 16}};
  for (const auto& [name, size] : bytes) {
    EXPECT_EQ(item_bytes(dtype_from_name(name)), size) << name;
    EXPECT_EQ(name_of(dtype_from_name(name)), name);
  }
  EXPECT_TRUE(is_integral(DType::boolean) && is_integral(DType::i64) && is_integral(DType::u8));
  EXPECT_FALSE(is_integral(DType::bf16) || is_integral(DType::c64) || is_integral(DType::f8_e5m2));
}

}  // namespace
}  // namespace shardway::testing
