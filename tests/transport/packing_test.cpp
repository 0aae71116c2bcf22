#include "transport/common/packing.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace shardway {
namespace {

Moves moves_of(const std::vector<Box>& boxes) {
  Moves moves;
  for (const Box& box : boxes) moves.push_back({.peer = static_cast<int64_t>(moves.size()), .mine = box});
  return moves;
}

TEST(SplitDim, IsTheDimAlongWhichBoxesMakeUpTheTensor) {
  EXPECT_EQ(split_dim(moves_of({{{0, 0}, {2, 4}}, {{2, 0}, {3, 4}}}), {5, 4}), 0);
  EXPECT_EQ(split_dim(moves_of({{{0, 0}, {5, 1}}, {{0, 1}, {5, 3}}}), {5, 4}), 1);
  EXPECT_EQ(split_dim(moves_of({{{0, 0}, {5, 4}}}), {5, 4}), 0);
  EXPECT_EQ(split_dim(moves_of({{{}, {}}}), {}), 0);
}

TEST(SplitDim, IsNoneWhereBoxesAreMissingOverlapOrStandInAnotherOrder) {
  EXPECT_EQ(split_dim({}, {5, 4}), std::nullopt);
  EXPECT_EQ(split_dim(moves_of({{{0, 0}, {2, 4}}}), {5, 4}), std::nullopt);
  EXPECT_EQ(split_dim(moves_of({{{0, 0}, {2, 4}}, {{1, 0}, {4, 4}}}), {5, 4}), std::nullopt);
  EXPECT_EQ(split_dim(moves_of({{{2, 0}, {3, 4}}, {{0, 0}, {2, 4}}}), {5, 4}), std::nullopt);
  EXPECT_EQ(split_dim(moves_of({{{0, 0}, {5, 4}}, {{0, 0}, {5, 4}}}), {5, 4}), std::nullopt);
  EXPECT_EQ(split_dim(moves_of({{{0, 0}, {2, 2}}, {{2, 2}, {3, 2}}}), {5, 4}), std::nullopt);
}

TEST(LiesInOrder, IsAskedOfMemory) {
  const Moves rows = moves_of({{{0, 0}, {2, 4}}, {{2, 0}, {3, 4}}});
  const Moves columns = moves_of({{{0, 0}, {5, 1}}, {{0, 1}, {5, 3}}});
  EXPECT_TRUE(lies_in_order(at::zeros({5, 4}), rows));
  EXPECT_FALSE(lies_in_order(at::zeros({4, 5}).t(), rows));
  EXPECT_FALSE(lies_in_order(at::zeros({5, 4}), columns));
  EXPECT_TRUE(lies_in_order(at::zeros({1, 4}), moves_of({{{0, 0}, {1, 1}}, {{0, 1}, {1, 3}}})));
  EXPECT_TRUE(lies_in_order(at::zeros({0, 4}), {}));
  EXPECT_FALSE(lies_in_order(at::zeros({5, 4}), {}));
}

TEST(Packed, HoldsTheBoxesOneBehindTheOtherAndUnpackPutsThemBack) {
  const Moves columns = moves_of({{{0, 0}, {2, 1}}, {{0, 1}, {2, 2}}});
  const Moves corners = moves_of({{{1, 1}, {1, 2}}, {{0, 0}, {1, 1}}});
  for (const auto dtype : {at::kByte, at::kHalf, at::kFloat8_e5m2, at::kFloat, at::kUInt32, at::kComplexFloat,
                           at::kComplexDouble}) {
    const at::Tensor numbers = at::arange(6, at::kFloat).view({2, 3}).to(dtype);
    for (const at::Tensor& x : {numbers, numbers.t().contiguous().t()}) {
      const auto values = [](const at::Tensor& t) {
        return (t.is_complex() ? t : t.to(at::kDouble)).to(at::kComplexDouble).flatten();
      };
      const auto expected = [&](at::ArrayRef<double> list) {
        return at::tensor(list, at::kDouble).to(at::kComplexDouble);
      };
      const at::Tensor all = packed(x, columns);
      EXPECT_TRUE(values(all).equal(expected({0, 3, 1, 2, 4, 5}))) << dtype << all;
      EXPECT_TRUE(values(packed(x, corners)).equal(expected({4, 5, 0}))) << dtype;
      const at::Tensor out = at::zeros({3, 2}, at::kFloat).to(dtype).t();
      unpack(all, columns, out);
      EXPECT_TRUE(values(out.contiguous()).equal(values(numbers))) << dtype << out;
      const at::Tensor few = at::zeros({2, 3}, at::kFloat).to(dtype);
      unpack(packed(x, corners), corners, few);
      EXPECT_TRUE(values(few).equal(expected({0, 0, 0, 0, 4, 5}))) << dtype << few;
    }
  }
}

}  // namespace
}  // namespace shardway
