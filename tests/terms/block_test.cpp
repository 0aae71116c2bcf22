// Blocks come back as they were written; those that a rank sends by mistake or on purpose are refused.
#include "terms/block.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "terms_kinds.h"

namespace shardway::testing {
namespace {

using wire::BlockHeader;
using wire::BlockView;
using wire::Slot;

constexpr int64_t kRanks = 3;
constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

uint8_t number_of(Collective collective) { return static_cast<uint8_t>(collective); }

// A block as a rank would write it, in memory of exactly its length. By itself it is that of a gather of a
// (2, 3) tensor with its payload.
struct Written {
  std::vector<int64_t> shape = {2, 3};
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> recv_sizes = {};
  BlockHeader header = {.dtype = 6, .slot_bytes = 24};

  std::vector<uint8_t> bytes() const {
    const wire::Draft draft{.header = header, .shape = shape, .sizes = sizes, .recv_sizes = recv_sizes};
    std::vector<uint8_t> bytes(static_cast<size_t>(wire::bytes_of(draft, kRanks)));
    wire::write(draft, kRanks, bytes.data());
    return bytes;
  }
};

BlockHeader& header_in(std::vector<uint8_t>& bytes) { return BlockView(bytes.data(), kRanks).header(); }

std::string refusal_of(std::vector<uint8_t> bytes, Slot slot = Slot::tensor) {
  bytes.shrink_to_fit();  // so that a sanitizer sees a step beyond it
  const char* why =
      wire::why_no_block(bytes.data(), static_cast<int64_t>(bytes.size()), kRanks, slot, kTestKinds);
  return why == nullptr ? "" : why;
}

// Of the gather, with something forged in it.
std::string forged(const std::function<void(BlockHeader&)>& forge) {
  std::vector<uint8_t> bytes = Written().bytes();
  forge(header_in(bytes));
  return refusal_of(bytes);
}

// Of the gather, written with something else in it.
std::string written_with(const std::function<void(Written&)>& change) {
  Written written;
  change(written);
  return refusal_of(written.bytes());
}

TEST(Block, OneThatIsRightIsTaken) {
  EXPECT_EQ(refusal_of(Written().bytes()), "");
  EXPECT_EQ(forged([](BlockHeader& h) { h.slot_bytes = -1; }), "");
}

TEST(Block, ComesBackAsItWasWritten) {
  const wire::CallHash hash = {7, 8};
  const std::vector<int64_t> shape = {4, 5, 6};
  const std::vector<int64_t> sizes = {1, 2, 1};
  const std::vector<int64_t> recv_sizes = {9, 8, 7};
  const wire::Draft draft{.header = {.collective = number_of(Collective::all_to_all_v), .dtype = 2},
                          .shape = shape,
                          .hash = &hash,
                          .sizes = sizes,
                          .recv_sizes = recv_sizes};
  std::vector<uint8_t> bytes(static_cast<size_t>(wire::bytes_of(draft, kRanks)), 0xff);
  const BlockView block = wire::write(draft, kRanks, bytes.data());
  EXPECT_EQ(refusal_of(bytes), "");
  EXPECT_EQ(std::vector(block.shape(), block.shape() + 3), shape);
  EXPECT_EQ(block.hash(), hash);
  EXPECT_EQ(std::vector(block.sizes(), block.sizes() + kRanks), sizes);
  EXPECT_EQ(std::vector(block.recv_sizes(), block.recv_sizes() + kRanks), recv_sizes);
  EXPECT_EQ(block.extent(), 4);
  EXPECT_EQ(block.slot(), bytes.data() + bytes.size());
  EXPECT_EQ((block.slot() - bytes.data()) % wire::kBlockAlignment, 0);
}

// Ranks of other builds, on other torches, read these bytes: other bytes need another kMagic.
TEST(Block, ThirdVersionHasTheseBytes) {
  const wire::CallHash hash = {0x0807060504030201, 0x100f0e0d0c0b0a09};
  const std::vector<int64_t> shape = {4, 5, 6};
  const std::vector<int64_t> sizes = {1, 2, 1};
  const std::vector<int64_t> recv_sizes = {9, 8, 7};
  const wire::Draft draft{.header = {.collective = number_of(Collective::all_to_all_v),
                                     .backward_of = 3,
                                     .op = 4,
                                     .grad = 2,
                                     .dtype = 15,
                                     .device = 1,
                                     .requires_grad = 1,
                                     .dim = 2,
                                     .root = -1,
                                     .list_length = 0x0102,
                                     .slot_bytes = 0x0304,
                                     .forward_number = 0x0506,
                                     .in_size = 0x0708,
                                     .out_size = -1,
                                     .factor = 1},
                          .shape = shape,
                          .hash = &hash,
                          .sizes = sizes,
                          .recv_sizes = recv_sizes};
  // clang-format off
  const std::vector<uint8_t> expected = {
      's', 'h', 'w', '3',                              // the version
      2, 3, 4, 2,                                      // all_to_all_v, the gradient of one, product, the third kind of gradient
      15, 1, 3,                                        // bfloat16 on CUDA, of 3 dims
      0b111101,                                        // a tensor, no problem, a hash, both lists, requires_grad
      2, 0, 0, 0,  0xff, 0xff, 0xff, 0xff,             // dim, root
      2, 1, 0, 0,  4, 3, 0, 0,                         // list_length, slot_bytes
      0, 0, 0, 0,                                      // unused
      6, 5, 0, 0, 0, 0, 0, 0,                          // forward_number
      8, 7, 0, 0, 0, 0, 0, 0,                          // in_size
      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,  // out_size
      0, 0, 0, 0, 0, 0, 0xf0, 0x3f,                    // factor: 1.0
      4, 0, 0, 0, 0, 0, 0, 0,  5, 0, 0, 0, 0, 0, 0, 0,  6, 0, 0, 0, 0, 0, 0, 0,  // the shape
      1, 2, 3, 4, 5, 6, 7, 8,  9, 10, 11, 12, 13, 14, 15, 16,                    // the hash
      1, 0, 0, 0, 0, 0, 0, 0,  2, 0, 0, 0, 0, 0, 0, 0,  1, 0, 0, 0, 0, 0, 0, 0,  // the sizes
      9, 0, 0, 0, 0, 0, 0, 0,  8, 0, 0, 0, 0, 0, 0, 0,  7, 0, 0, 0, 0, 0, 0, 0,  // the recv_sizes
      0, 0, 0, 0, 0, 0, 0, 0};                         // to the next multiple of 16
  // clang-format on
  std::vector<uint8_t> bytes(static_cast<size_t>(wire::bytes_of(draft, kRanks)), 0xff);
  wire::write(draft, kRanks, bytes.data());
  EXPECT_EQ(bytes.size(), expected.size() + 0x0304);
  bytes.resize(expected.size());  // without the slot
  EXPECT_EQ(bytes, expected);
}

TEST(Block, BytesOfAnotherCallAreNone) {
  EXPECT_NE(forged([](BlockHeader& h) { h.magic = 7; }), "");
  const std::vector<uint8_t> whole = Written().bytes();
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(refusal_of({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}), "") << length;
}

TEST(Block, ALengthBeyondTheBytesIsRefused) {
  for (int32_t length : {25, 1 << 20, std::numeric_limits<int32_t>::max(), -2, -1000})
    EXPECT_NE(forged([&](BlockHeader& h) { h.slot_bytes = length; }), "") << length;
  EXPECT_NE(forged([](BlockHeader& h) { h.has_sizes = 1, h.has_recv_sizes = 1, h.slot_bytes = -1; }), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.has_problem = 1, h.slot_bytes = 1'000'000; }), "");
  std::vector<uint8_t> problem = Written().bytes();
  header_in(problem).has_problem = 1;
  EXPECT_EQ(refusal_of(problem), "");
  EXPECT_EQ(refusal_of(problem, Slot::words), "");
}

TEST(Block, AShapeThatIsNotItsPayloadsIsRefused) {
  const auto with_shape = [](std::vector<int64_t> shape, int32_t slot_bytes = 24) {
    return written_with([&](Written& w) { w.shape = shape, w.header.slot_bytes = slot_bytes; });
  };
  EXPECT_EQ(with_shape({2, 3}), "");
  EXPECT_NE(with_shape({3, 3}), "");
  EXPECT_NE(with_shape({-1, 3}), "");
  EXPECT_NE(with_shape({kLargest, 3}), "");
  EXPECT_NE(with_shape({kLargest, 4}, 0), "");
  EXPECT_NE(with_shape({int64_t{1} << 33, int64_t{1} << 33}), "");
  EXPECT_NE(with_shape(std::vector<int64_t>(17, 1), 4), "");
  EXPECT_NE(with_shape({}, 4), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.ndim = 255; }), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.dim = 2; }), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.dim = -1; }), "");
}

TEST(Block, NumbersThatStandForNothingAreRefused) {
  EXPECT_NE(forged([](BlockHeader& h) { h.collective = kCollectives; }), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.collective = 255; }), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.backward_of = 200; }), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.dtype = 100; }), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.dtype = -1; }), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.device = 2; }), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.device = -1; }), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.op = 9; }), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.grad = 3; }), "");
  EXPECT_NE(forged([](BlockHeader& h) { h.out_size = -2; }), "");
}

TEST(Block, ARootIsARank) {
  for (int32_t root : {-2, static_cast<int32_t>(kRanks), std::numeric_limits<int32_t>::max()})
    EXPECT_NE(forged([&](BlockHeader& h) { h.root = root; }), "") << root;
  for (const Collective collective : {Collective::broadcast, Collective::dist_broadcast}) {
    const auto with_root = [&](int32_t root) {
      return written_with([&](Written& w) {
        w.header = {
            .collective = number_of(collective), .dtype = 6, .root = root, .in_size = 6, .out_size = 6};
      });
    };
    EXPECT_NE(with_root(-1), "");
    EXPECT_EQ(with_root(2), "");
  }
}

TEST(Block, SizesAreThoseOfItsTensor) {
  const auto exchange = [](std::vector<int64_t> sizes, std::vector<int64_t> recv_sizes = {}) {
    return written_with([&](Written& w) {
      w.header.collective = number_of(Collective::all_to_all_v);
      w.sizes = sizes;
      w.recv_sizes = recv_sizes;
    });
  };
  EXPECT_EQ(exchange({1, 0, 1}), "");
  EXPECT_EQ(exchange({1, 0, 1}, {5, 6, 7}), "");
  EXPECT_NE(exchange({1, 1, 1}), "");
  EXPECT_NE(exchange({4, -1, -1}), "");
  EXPECT_NE(exchange({kLargest, kLargest, 4}), "");
  EXPECT_NE(exchange({}), "");
  EXPECT_NE(exchange({1, 0, 1}, {0, -5, 0}), "");
}

TEST(Block, CountsOfTorchsCallsCanBe) {
  const auto exchange = [](std::vector<int64_t> sizes, int64_t in_size, int64_t out_size) {
    return written_with([&](Written& w) {
      w.shape = {};
      w.sizes = sizes;
      w.header = {.collective = number_of(Collective::dist_all_to_all),
                  .dtype = 6,
                  .in_size = in_size,
                  .out_size = out_size};
    });
  };
  EXPECT_EQ(exchange({}, 5, 5), "");
  EXPECT_EQ(exchange({1, 2, 3}, -1, 5), "");
  for (const int64_t count : {kLargest, -kLargest, wire::kMostElements + 1, int64_t{-1}}) {
    EXPECT_NE(exchange({}, count, 5), "");
    EXPECT_NE(exchange({}, 5, count), "");
    EXPECT_NE(exchange({1, count, 3}, 5, 5), "");
  }
}

TEST(Block, ASparseShapeMayBeLargerThanMemory) {
  const auto with = [](std::vector<int64_t> shape, int32_t sparse_dims) {
    return written_with([&](Written& w) {
      w.shape = shape;
      w.header = {.collective = number_of(Collective::dist_sparse_all_reduce),
                  .dtype = 6,
                  .dim = sparse_dims,
                  .in_size = 5,
                  .out_size = 5};
    });
  };
  EXPECT_EQ(with({kLargest, kLargest}, 2), "");
  EXPECT_NE(with({kLargest, -1}, 2), "");
  EXPECT_NE(with({4, 4}, 3), "");
  EXPECT_NE(with({4, 4}, -1), "");
}

TEST(Block, WithoutATensorItDescribesNone) {
  EXPECT_NE(forged([](BlockHeader& h) { h.has_tensor = 0; }), "");
  EXPECT_EQ(written_with([](Written& w) { w.shape = {}, w.header = {.has_tensor = 0}; }), "");
}

TEST(Block, TorchsCallsHaveATensorButForABarrier) {
  const auto bare = [](Collective collective) {
    return written_with([&](Written& w) {
      w.shape = {};
      w.header = {.collective = number_of(collective), .has_tensor = 0};
    });
  };
  EXPECT_EQ(bare(Collective::dist_barrier), "");
  EXPECT_NE(bare(Collective::dist_all_reduce), "");
  EXPECT_NE(written_with([](Written& w) { w.shape = {}, w.header = {.device = 77, .has_tensor = 0}; }), "");
}

TEST(Block, HoldsAsMuchOfATextAsItMayTell) {
  for (const size_t length : {0, 5, 1024, 1025}) {
    const std::string text(length, 'x');
    const wire::Draft draft{.header = {.has_problem = 1}, .text = text};
    std::vector<uint8_t> bytes(static_cast<size_t>(wire::bytes_of(draft, kRanks)));
    const BlockView block = wire::write(draft, kRanks, bytes.data());
    EXPECT_EQ(refusal_of(bytes), "");
    EXPECT_EQ(block.text(), text.substr(0, 1024));
    EXPECT_EQ(bytes.size(), 64 + std::min<size_t>(length, 1024));
  }
}

}  // namespace
}  // namespace shardway::testing
