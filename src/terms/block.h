// The bytes that a rank sends before a collective, and how they are read: once, on a copy, against the bytes
// that are there. No torch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "terms/collective.h"
#include "terms/kinds.h"

namespace shardway::wire {

inline constexpr uint32_t kMagic = 0x32776873;  // "shw2"

// Of a problem's text, at most this much is told.
inline constexpr int64_t kProblemBytes = 1024;

// The fixed part of a block. It is followed by two lists of one int64 per rank (sizes, recv_sizes) and by
// the slot, which holds the payload or the text of the problem.
struct BlockHeader {
  uint32_t magic = kMagic;
  uint8_t collective = 0;
  uint8_t has_problem = 0;
  uint8_t has_sizes = 0;
  uint8_t has_recv_sizes = 0;
  int8_t dtype = 0;
  int8_t device = 0;
  uint8_t op = 0;
  uint8_t grad = 0;
  uint8_t requires_grad = 0;
  uint8_t dim = 0;
  uint8_t ndim = 0;
  uint8_t has_tensor = 1;
  uint8_t backward_of = 0;  // a collective, counted from 1; 0: this is no gradient
  std::array<uint8_t, 3> unused = {};
  uint32_t list_length = 0;     // of the list that the tensor is of; 0: of none
  uint64_t forward_number = 0;  // of the call whose gradient this is
  int64_t slot_bytes = -1;      // -1: the payload comes in a second round
  int64_t out_size = -1;
  int64_t root = -1;
  int64_t dim_without_tensor = 0;  // as given, on a rank that brings no tensor
  std::array<int64_t, kMaxDims> shape = {};
};
static_assert(sizeof(BlockHeader) % 16 == 0);

// In place of a list's length, from a rank that brings no tensors.
inline constexpr uint32_t kUnknownLength = 0xffffffff;

// A block without what is in its slot.
constexpr int64_t line_bytes(int64_t ranks) { return int64_t{sizeof(BlockHeader)} + 16 * ranks; }

// Blocks of a list lie one behind the other, aligned to this.
inline constexpr int64_t kBlockAlignment = 16;
constexpr int64_t aligned(int64_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

// A view of a block, which has been read or is being written. Aligned as a Header is.
class BlockView {
 public:
  BlockView(uint8_t* data, int64_t ranks) : data_(data), ranks_(ranks) {}

  BlockHeader& header() const { return *reinterpret_cast<BlockHeader*>(data_); }
  int64_t* sizes() const { return reinterpret_cast<int64_t*>(data_ + sizeof(BlockHeader)); }
  int64_t* recv_sizes() const { return sizes() + ranks_; }
  uint8_t* slot() const { return reinterpret_cast<uint8_t*>(recv_sizes() + ranks_); }

 private:
  uint8_t* data_;
  int64_t ranks_;
};

// What a block's slot holds.
enum class Slot : uint8_t { tensor, words };

// How many of these bytes the block at their beginning takes, aligned; 0 where there is none. What it says
// has still to be checked.
int64_t block_bytes(const uint8_t* data, int64_t bytes, int64_t ranks);

// Why these bytes, at the beginning of `data`, are no block of one of so many ranks; null where they are one:
// then everything that it counts is there, and every number is one that it may be.
const char* why_no_block(uint8_t* data, int64_t bytes, int64_t ranks, Slot slot, const Kinds& kinds);

}  // namespace shardway::wire
