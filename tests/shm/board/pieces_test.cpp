#include "shm/board/pieces.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace shardway::shm {
namespace {

using Numbers = std::vector<int64_t>;

Numbers numbers(const FixedDims& dims) { return {dims.begin(), dims.end()}; }

TEST(Pieces, RowsAreKeptTogetherWhereTheyFit) {
  const Pieces pieces(Numbers{3, 5}, 4, 40);
  ASSERT_EQ(pieces.count(), 2);
  EXPECT_EQ(numbers(pieces[0].offset), (Numbers{0, 0}));
  EXPECT_EQ(numbers(pieces[0].extent), (Numbers{2, 5}));
  EXPECT_EQ(numbers(pieces[1].offset), (Numbers{2, 0}));
  EXPECT_EQ(numbers(pieces[1].extent), (Numbers{1, 5}));
}

TEST(Pieces, LongRowsAreCut) {
  const Pieces pieces(Numbers{2, 5}, 4, 12);
  ASSERT_EQ(pieces.count(), 4);
  EXPECT_EQ(numbers(pieces[1].offset), (Numbers{0, 3}));
  EXPECT_EQ(numbers(pieces[1].extent), (Numbers{1, 2}));
  EXPECT_EQ(numbers(pieces[2].offset), (Numbers{1, 0}));
}

TEST(Pieces, NothingHasNoPieces) { EXPECT_EQ(Pieces(Numbers{3, 0}, 4, 40).count(), 0); }
TEST(Pieces, AScalarIsOne) { EXPECT_EQ(Pieces(Numbers{}, 4, 40).count(), 1); }

RC_GTEST_PROP(Pieces, CoverEveryElementOnceAndFitTheSlot, ()) {
  const auto dims = *rc::gen::inRange<size_t>(0, 4);
  const Numbers extent = *rc::gen::container<Numbers>(dims, rc::gen::inRange<int64_t>(0, 9));
  const int64_t slot = *rc::gen::inRange<int64_t>(4, 200);
  const Pieces pieces(extent, 4, slot);
  std::vector<int> seen(static_cast<size_t>(volume(extent)), 0);
  const FixedDims strides = packed_strides(extent, 1);
  for (int64_t i = 0; i < pieces.count(); ++i) {
    const Piece piece = pieces[i];
    RC_ASSERT(volume(piece.extent) * 4 <= slot);
    for (int64_t n = 0; n < volume(piece.extent); ++n) {
      FixedDims at = piece.offset;
      int64_t rest = n;
      for (size_t d = dims; d-- > 0; rest /= piece.extent[d]) at[d] += rest % piece.extent[d];
      ++seen[static_cast<size_t>(offset_bytes(at, strides))];
    }
  }
  for (const int times : seen) RC_ASSERT(times == 1);
}

}  // namespace
}  // namespace shardway::shm
