// Blocks as a rank may send them by mistake or on purpose.
#include "terms/block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace shardway::testing {
namespace {

using wire::BlockHeader;
using wire::BlockView;
using wire::Slot;

constexpr int64_t kRanks = 3;
constexpr wire::Kinds kKinds{
    .bytes_of_dtype = [](int64_t dtype) -> int64_t { return dtype >= 0 && dtype < 8 ? 4 : 0; }, .devices = 2};
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

// The block of a gather of a (2, 3) tensor with its payload, in memory of exactly its length.
class Bytes {
 public:
  Bytes() : data_(static_cast<size_t>(wire::line_bytes(kRanks) + 24)) {
    header() = BlockHeader{.dtype = 6, .ndim = 2, .slot_bytes = 24, .shape = {2, 3}};
  }

  BlockHeader& header() { return block().header(); }
  BlockView block() { return {data_.data(), kRanks}; }
  void cut(size_t bytes) { data_.resize(bytes); }

  std::string refusal(Slot slot = Slot::tensor) {
    std::vector<uint8_t> copy(data_);  // so that a sanitizer sees a step beyond it
    const char* why =
        wire::why_no_block(copy.data(), static_cast<int64_t>(copy.size()), kRanks, slot, kKinds);
    return why == nullptr ? "" : why;
  }

 private:
  std::vector<uint8_t> data_;
};

std::string refusal_of(const std::function<void(Bytes&)>& forge) {
  Bytes bytes;
  forge(bytes);
  return bytes.refusal();
}

TEST(Block, OneThatIsRightIsTaken) {
  EXPECT_EQ(Bytes().refusal(), "");
  EXPECT_EQ(refusal_of([](Bytes& b) { b.header().slot_bytes = -1; }), "");
}

TEST(Block, BytesOfAnotherCallAreNone) {
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().magic = 7; }), "");
  for (size_t length :
       {size_t{0}, size_t{1}, sizeof(BlockHeader) - 1, sizeof(BlockHeader), sizeof(BlockHeader) + 47})
    EXPECT_NE(refusal_of([&](Bytes& b) { b.cut(length); }), "") << length;
}

TEST(Block, ALengthBeyondTheBytesIsRefused) {
  for (int64_t length : {int64_t{25}, int64_t{1} << 20, kLargest, int64_t{-2}, -kLargest})
    EXPECT_NE(refusal_of([&](Bytes& b) { b.header().slot_bytes = length; }), "") << length;
  Bytes problem;
  problem.header().has_problem = 1;
  problem.header().slot_bytes = 1'000'000;
  EXPECT_NE(problem.refusal(), "");
  problem.header().slot_bytes = 24;
  EXPECT_EQ(problem.refusal(), "");
  EXPECT_EQ(problem.refusal(Slot::words), "");
}

TEST(Block, AShapeThatIsNotItsPayloadsIsRefused) {
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().shape[0] = 3; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().shape[0] = -1; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().shape[0] = kLargest; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().shape = {kLargest, 4}, b.header().slot_bytes = 0; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().shape = {int64_t{1} << 33, int64_t{1} << 33}; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().ndim = 17; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().ndim = 255; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().dim = 2; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().ndim = 0, b.header().slot_bytes = 4; }), "");
}

TEST(Block, NumbersThatStandForNothingAreRefused) {
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().collective = 200; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().backward_of = 200; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().dtype = 100; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().dtype = -1; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().device = 2; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().device = -1; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().op = 9; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().grad = 3; }), "");
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().out_size = -2; }), "");
}

TEST(Block, ARootIsARank) {
  for (int64_t root : {int64_t{-2}, kRanks, kLargest})
    EXPECT_NE(refusal_of([&](Bytes& b) { b.header().root = root; }), "") << root;
  const auto broadcast = static_cast<uint8_t>(Collective::broadcast);
  EXPECT_NE(refusal_of([&](Bytes& b) { b.header().collective = broadcast; }), "");
  EXPECT_EQ(refusal_of([&](Bytes& b) { b.header().collective = broadcast, b.header().root = 2; }), "");
}

TEST(Block, SizesAreThoseOfItsTensor) {
  const auto exchange = [](Bytes& b, std::vector<int64_t> sizes) {
    b.header().collective = static_cast<uint8_t>(Collective::all_to_all_v);
    b.header().has_sizes = 1;
    std::copy(sizes.begin(), sizes.end(), b.block().sizes());
  };
  EXPECT_EQ(refusal_of([&](Bytes& b) { exchange(b, {1, 0, 1}); }), "");
  EXPECT_NE(refusal_of([&](Bytes& b) { exchange(b, {1, 1, 1}); }), "");
  EXPECT_NE(refusal_of([&](Bytes& b) { exchange(b, {4, -1, -1}); }), "");
  EXPECT_NE(refusal_of([&](Bytes& b) { exchange(b, {kLargest, kLargest, 4}); }), "");
  EXPECT_NE(refusal_of([&](Bytes& b) { exchange(b, {1, 0, 1}), b.header().has_sizes = 0; }), "");
  EXPECT_NE(refusal_of([&](Bytes& b) {
              exchange(b, {1, 0, 1});
              b.header().has_recv_sizes = 1;
              b.block().recv_sizes()[1] = -5;
            }),
            "");
}

TEST(Block, WithoutATensorItDescribesNone) {
  EXPECT_NE(refusal_of([](Bytes& b) { b.header().has_tensor = 0; }), "");
  EXPECT_EQ(refusal_of([](Bytes& b) { b.header() = BlockHeader{.has_tensor = 0}; }), "");
}

}  // namespace
}  // namespace shardway::testing
