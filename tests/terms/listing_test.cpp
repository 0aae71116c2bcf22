// Listings as a rank may send them by mistake or on purpose.
#include "terms/listing.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace shardway::testing {
namespace {

using wire::ListRecord;
using wire::NoListing;

constexpr int64_t kRanks = 3;
constexpr wire::Kinds kKinds{
    .bytes_of_dtype = [](int64_t dtype) -> int64_t { return dtype >= 0 && dtype < 8 ? 4 : 0; }, .devices = 2};

ListRecord two_tensors() {
  return {.collective = Collective::reduce_scatter_v,
          .op = 1,
          .tensors = {{.dtype = 6, .dim = 1, .shape = {2, 6}, .sizes = {1, 2, 3}},
                      {.dtype = 7, .requires_grad = true, .dim = 0, .shape = {0}, .sizes = {0, 0, 0}}}};
}

// Where the numbers lie: magic, length, collective, op, grad, problem's length, count, then of the first
// tensor dtype, requires_grad, dim, ndim, two extents, number of sizes, three sizes.
constexpr size_t kLength = 1;
constexpr size_t kCollective = 2;
constexpr size_t kOp = 3;
constexpr size_t kGrad = 4;
constexpr size_t kProblem = 5;
constexpr size_t kCount = 6;
constexpr size_t kDtype = 7;
constexpr size_t kRequiresGrad = 8;
constexpr size_t kDim = 9;
constexpr size_t kNdim = 10;
constexpr size_t kExtent = 12;
constexpr size_t kSizes = 13;
constexpr size_t kFirstSize = 14;

std::vector<std::byte> forged(size_t word, int64_t value) {
  std::vector<std::byte> bytes = wire::written(two_tensors());
  std::memcpy(bytes.data() + word * sizeof(value), &value, sizeof(value));
  return bytes;
}

ListRecord read(const std::vector<std::byte>& bytes) { return wire::read_listing(bytes, kRanks, kKinds); }

TEST(ListRecord, WhatIsWrittenIsRead) {
  EXPECT_EQ(read(wire::written(two_tensors())), two_tensors());
  const ListRecord problem{.problem = "x is an empty list"};
  EXPECT_EQ(read(wire::written(problem)), problem);
}

TEST(ListRecord, CountsBeyondTheBytesAreRefused) {
  const int64_t largest = std::numeric_limits<int64_t>::max();
  for (const size_t word : {kLength, kProblem, kCount, kNdim, kSizes}) {
    for (const int64_t value : {largest, int64_t{-1}, -largest, int64_t{1} << 40, int64_t{1000}})
      EXPECT_THROW(read(forged(word, value)), NoListing) << word << " " << value;
  }
}

TEST(ListRecord, NumbersThatStandForNothingAreRefused) {
  for (const size_t word : {kCollective, kOp, kGrad, kDtype, kRequiresGrad, kDim}) {
    for (const int64_t value : {int64_t{-1}, int64_t{200}})
      EXPECT_THROW(read(forged(word, value)), NoListing) << word << " " << value;
  }
  EXPECT_THROW(read(forged(kCollective, 6)), NoListing);
  EXPECT_THROW(read(forged(kDim, 2)), NoListing);
}

TEST(ListRecord, SizesAreThoseOfItsTensors) {
  EXPECT_THROW(read(forged(kExtent, 7)), NoListing);
  EXPECT_THROW(read(forged(kExtent, -6)), NoListing);
  EXPECT_THROW(read(forged(kFirstSize, -1)), NoListing);
  EXPECT_THROW(read(forged(kFirstSize, std::numeric_limits<int64_t>::max())), NoListing);
}

TEST(ListRecord, OneThatIsCutShortIsRefused) {
  const std::vector<std::byte> whole = wire::written(two_tensors());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_THROW(read({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes)}), NoListing) << bytes;
  EXPECT_THROW(wire::listing_bytes(std::span(whole).first(16), 16), NoListing);
}

}  // namespace
}  // namespace shardway::testing
