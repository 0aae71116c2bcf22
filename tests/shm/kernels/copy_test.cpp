#include "shm/kernels/copy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "every_isa.h"

namespace shardway::shm::testing {
namespace {

using Bytes = std::vector<std::byte>;
using Longs = std::vector<int64_t>;
constexpr std::byte kUntouched{0xA5};

using CopyFunction = void (*)(std::byte*, const std::byte*, int64_t);

// What lies before and after the copy has to stay as it is.
void expect_copies(CopyFunction copy, int64_t bytes, int64_t to_offset, int64_t from_offset) {
  const Bytes from = random_bytes(bytes + from_offset, 1 + bytes);
  Bytes to(static_cast<size_t>(bytes + to_offset + 64), kUntouched);
  Bytes expected = to;
  std::copy_n(from.begin() + from_offset, bytes, expected.begin() + to_offset);
  copy(to.data() + to_offset, from.data() + from_offset, bytes);
  ASSERT_EQ(to, expected) << bytes << " bytes to +" << to_offset << " from +" << from_offset;
}

TEST(CopyBytes, OfEverySmallSizeAndAlignment) {
  on_every_isa([] {
    for (int64_t bytes = 0; bytes <= 200; ++bytes) {
      for (const int64_t to : {0, 1, 7, 63}) {
        for (const int64_t from : {0, 3, 32}) expect_copies(copy_bytes, bytes, to, from);
      }
    }
  });
}

TEST(CopyBytes, AroundTheBordersOfItsLoops) {
  on_every_isa([] {
    for (const int64_t border : {256, 512, 1024, 2048, 4096, 65536}) {
      for (int64_t bytes = border - 3; bytes <= border + 3; ++bytes) {
        for (const int64_t to : {0, 5, 64}) expect_copies(copy_bytes, bytes, to, 9);
      }
    }
  });
}

TEST(CopyTwice, FillsBothPlacesAndNothingElse) {
  on_every_isa([] {
    for (const int64_t bytes : {0, 1, 63, 64, 255, 256, 257, 511, 4097, 70001}) {
      for (const int64_t offset : {0, 1, 33}) {
        Bytes also_to(static_cast<size_t>(bytes + 64), kUntouched);
        const Bytes from = random_bytes(bytes, 1 + bytes);
        Bytes to(static_cast<size_t>(bytes + 64), kUntouched);
        copy_twice(to.data(), also_to.data() + offset, from.data(), bytes);
        Bytes expected(static_cast<size_t>(bytes + 64), kUntouched);
        std::copy(from.begin(), from.end(), expected.begin());
        ASSERT_EQ(to, expected);
        std::fill(expected.begin(), expected.end(), kUntouched);
        std::copy(from.begin(), from.end(), expected.begin() + offset);
        ASSERT_EQ(also_to, expected);
      }
    }
  });
}

TEST(CopyBytes, PastTheCacheIsTheSame) {
  on_every_isa([] {
    for (const int64_t bytes : {0, 1, 63, 64, 127, 300, 4097, 70001}) {
      for (const int64_t to : {0, 1, 33, 63}) expect_copies(stream_bytes, bytes, to, 5);
    }
    expect_copies(copy_bytes, kStreamFromBytes + 77, 3, 1);
  });
}

// A box within its own memory: strides of a permuted tensor with gaps, all as counts of elements.
struct Side {
  Longs strides = {};
  int64_t elements = 1;
};

Side any_side(const Longs& extent) {
  Longs order(extent.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[*rc::gen::inRange<size_t>(0, i)]);
  Side side{.strides = Longs(extent.size())};
  for (const int64_t d : order) {
    side.strides[d] = side.elements;
    side.elements *= extent[d] + *rc::gen::element<int64_t>(0, 0, 1, 3);
  }
  return side;
}

Longs in_bytes(const Longs& strides, int64_t element_bytes) {
  Longs bytes = strides;
  for (int64_t& stride : bytes) stride *= element_bytes;
  return bytes;
}

template <class Visit>
void each_index(const Longs& extent, const Visit& visit) {
  if (std::find(extent.begin(), extent.end(), 0) != extent.end()) return;
  Longs index(extent.size());
  while (true) {
    visit(index);
    size_t d = extent.size();
    while (d > 0 && ++index[d - 1] == extent[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

RC_GTEST_PROP(CopyBox, PutsEveryElementInItsPlaceAndNothingElse, ()) {
  const auto extent = *rc::gen::resize(5, rc::gen::container<Longs>(rc::gen::inRange<int64_t>(0, 41)));
  RC_PRE(extent.size() <= 4);
  RC_PRE(std::accumulate(extent.begin(), extent.end(), int64_t{1}, std::multiplies<>()) < 40000);
  const auto element = *rc::gen::element<int64_t>(1, 2, 3, 4, 8, 12, 16, 24);
  const Side to_side = any_side(extent);
  const Side from_side = any_side(extent);
  const Bytes from = random_bytes(from_side.elements * element, 7);
  const Bytes before(static_cast<size_t>(to_side.elements * element), kUntouched);
  Bytes expected = before;
  each_index(extent, [&](const Longs& index) {
    const auto at = [&](const Side& side) {
      return element * std::inner_product(index.begin(), index.end(), side.strides.begin(), int64_t{0});
    };
    std::copy_n(from.begin() + at(from_side), element, expected.begin() + at(to_side));
  });
  on_every_isa([&] {
    Bytes to = before;
    copy_box(to.data(), in_bytes(to_side.strides, element), from.data(), in_bytes(from_side.strides, element),
             extent, element);
    RC_ASSERT(to == expected);
  });
}

TEST(CopyBox, TransposesTheMatrixOfItsExample) {
  const std::vector<int32_t> from = {1, 2, 3, 4, 5, 6};
  std::vector<int32_t> to(6);
  copy_box(reinterpret_cast<std::byte*>(to.data()), Longs{12, 4},
           reinterpret_cast<const std::byte*>(from.data()), Longs{4, 8}, Longs{2, 3}, 4);
  EXPECT_EQ(to, (std::vector<int32_t>{1, 3, 5, 2, 4, 6}));
}

TEST(CopyBox, RepeatsASourceOfStrideZero) {
  const std::vector<int32_t> from = {1, 2};
  std::vector<int32_t> to(6);
  copy_box(reinterpret_cast<std::byte*>(to.data()), Longs{8, 4},
           reinterpret_cast<const std::byte*>(from.data()), Longs{0, 4}, Longs{3, 2}, 4);
  EXPECT_EQ(to, (std::vector<int32_t>{1, 2, 1, 2, 1, 2}));
}

TEST(CopyBox, OfLargeRowsGoesPastTheCacheAndIsTheSame) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kRow = kStreamFromBytes / 2 + 5;
  const Bytes from = random_bytes(kRows * (kRow + 3), 11);
  on_every_isa([&] {
    Bytes to(kRows * (kRow + 1));
    copy_box(to.data(), Longs{kRow + 1, 1}, from.data(), Longs{kRow + 3, 1}, Longs{kRows, kRow}, 1);
    for (int64_t r = 0; r < kRows; ++r) {
      EXPECT_TRUE(std::equal(to.begin() + r * (kRow + 1), to.begin() + r * (kRow + 1) + kRow,
                             from.begin() + r * (kRow + 3)));
    }
  });
}

// 18 dims of 2 that do not join: the input has them the other way round.
TEST(CopyBox, OfMoreDimsThanAnyTensorHasInPractice) {
  constexpr int64_t kDims = 18;
  const Longs extent(kDims, 2);
  Longs to_strides;
  for (int64_t d = 0; d < kDims; ++d) to_strides.push_back(int64_t{1} << d);
  const Longs from_strides(to_strides.rbegin(), to_strides.rend());
  const Bytes from = random_bytes(int64_t{1} << kDims, 3);
  Bytes expected(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    size_t reversed = 0;
    for (int64_t d = 0; d < kDims; ++d) reversed |= (i >> d & 1) << (kDims - 1 - d);
    expected[i] = from[reversed];
  }
  Bytes to(from.size());
  copy_box(to.data(), to_strides, from.data(), from_strides, extent, 1);
  EXPECT_EQ(to, expected);
}

TEST(CopyBox, RefusesStridesThatDoNotFitTheExtent) {
  std::byte byte{};
  EXPECT_THROW(copy_box(&byte, Longs{1}, &byte, Longs{1, 1}, Longs{1, 1}, 1), std::invalid_argument);
  EXPECT_THROW(copy_box(&byte, Longs{-1}, &byte, Longs{1}, Longs{1}, 1), std::invalid_argument);
}

}  // namespace
}  // namespace shardway::shm::testing
