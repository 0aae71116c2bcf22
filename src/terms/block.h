// What a rank is about to do, as the bytes that it tells the others before a call, and how they are read:
// once, on a copy, against the bytes that are there. The only such format: the ops send it, lists, meshes and
// torch.distributed's calls. No torch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "terms/collective.h"
#include "terms/kinds.h"

namespace shardway::wire {

inline constexpr uint32_t kMagic = 0x33776873;  // "shw3"

// Of a problem's text, at most this much is told.
inline constexpr int64_t kProblemBytes = 1024;

// Stands for what all ranks must say alike and is too long for a block.
using CallHash = std::array<uint64_t, 2>;

// No tensor of torch.distributed's calls has more elements: what all ranks' counts add up to is a number.
inline constexpr int64_t kMostElements = int64_t{1} << 48;

// The fixed part of a block, a cache line. Behind it lie, where they are said to be, the shape (an int64 per
// dim), a hash, and two lists of one int64 per rank (sizes, recv_sizes). From the next multiple of 16 on
// follows the slot: the payload, or the text of the problem.
struct BlockHeader {
  uint32_t magic = kMagic;
  uint8_t collective = 0;
  uint8_t backward_of = 0;  // a collective, counted from 1; 0: this is no gradient
  uint8_t op = 0;           // see kOpNames
  uint8_t grad = 0;
  int8_t dtype = 0;
  int8_t device = 0;
  uint8_t ndim = 0;
  uint8_t has_tensor : 1 = 1;
  uint8_t has_problem : 1 = 0;
  uint8_t has_hash : 1 = 0;
  uint8_t has_sizes : 1 = 0;
  uint8_t has_recv_sizes : 1 = 0;
  uint8_t requires_grad : 1 = 0;
  int32_t dim = 0;  // as given, on a rank that brings no tensor; of a sparse one, how many are sparse
  int32_t root = -1;
  uint32_t list_length = 0;  // of the list that the tensor is of; 0: of none
  int32_t slot_bytes = -1;   // -1: the payload comes in a second round
  uint32_t unused = 0;
  uint64_t forward_number = 0;  // of the call whose gradient this is
  int64_t in_size =
      -1;  // of torch.distributed's calls: elements for each rank, where sizes does not list them
  int64_t out_size = -1;  // the same from each rank; else the extent of the caller's out along dim
  double factor = 1;      // of premul_sum
};
static_assert(sizeof(BlockHeader) == 64);

// In place of a list's length, from a rank that brings no tensors.
inline constexpr uint32_t kUnknownLength = 0xffffffff;

// Blocks of a list lie one behind the other, aligned to this, and so do slots within a block.
inline constexpr int64_t kBlockAlignment = 16;
constexpr int64_t aligned(int64_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

// A block without what is in its slot; the header's ndim is one that can be.
constexpr int64_t line_bytes(const BlockHeader& header, int64_t ranks) {
  const int64_t lists = header.has_sizes + header.has_recv_sizes;
  return aligned(int64_t{sizeof(BlockHeader)} + 8 * (header.ndim + 2 * header.has_hash + lists * ranks));
}

// At most.
constexpr int64_t longest_line(int64_t ranks) {
  return aligned(int64_t{sizeof(BlockHeader)} + 8 * (kMaxDims + 2 + 2 * ranks));
}

// A view of a block, which has been read or is being written: the header first, which says where the rest
// lies. Aligned as a BlockHeader is.
class BlockView {
 public:
  BlockView(uint8_t* data, int64_t ranks) : data_(data), ranks_(ranks) {}

  BlockHeader& header() const { return *reinterpret_cast<BlockHeader*>(data_); }
  Collective collective() const { return static_cast<Collective>(header().collective); }
  int64_t* shape() const { return reinterpret_cast<int64_t*>(data_ + sizeof(BlockHeader)); }
  CallHash& hash() const { return *reinterpret_cast<CallHash*>(shape() + header().ndim); }
  int64_t* sizes() const { return shape() + header().ndim + 2 * header().has_hash; }
  int64_t* recv_sizes() const { return sizes() + (header().has_sizes ? ranks_ : 0); }
  uint8_t* slot() const { return data_ + line_bytes(header(), ranks_); }
  int64_t ranks() const { return ranks_; }

  // The tensor's extent along its dim; 0 where it has none.
  int64_t extent() const {
    const int32_t dim = header().dim;
    return dim >= 0 && dim < header().ndim ? shape()[dim] : 0;
  }

  // What goes to a rank, and what is expected of one.
  int64_t sent_to(int64_t rank) const { return header().has_sizes ? sizes()[rank] : header().in_size; }
  int64_t expected_of(int64_t rank) const {
    return header().has_recv_sizes ? recv_sizes()[rank] : header().out_size;
  }

  // In the slot.
  std::string_view text() const {
    return {reinterpret_cast<const char*>(slot()), static_cast<size_t>(header().slot_bytes)};
  }

 private:
  uint8_t* data_;
  int64_t ranks_;
};

// A block that is still to be written. The header's own ndim, has_hash, has_sizes and has_recv_sizes follow
// from the rest.
struct Draft {
  BlockHeader header = {};
  std::span<const int64_t> shape = {};
  const CallHash* hash = nullptr;
  std::span<const int64_t> sizes = {};
  std::span<const int64_t> recv_sizes = {};
};

// The header that the draft's block gets.
BlockHeader header_of(const Draft& draft);

// Writes everything but what is in the slot.
BlockView write(const Draft& draft, int64_t ranks, uint8_t* to);

// What a block's slot holds.
enum class Slot : uint8_t { tensor, words };

// How many of these bytes the block at their beginning takes, aligned; 0 where there is none. What it says
// has still to be checked.
int64_t block_bytes(const uint8_t* data, int64_t bytes, int64_t ranks);

// Why these bytes, at the beginning of `data`, are no block of one of so many ranks; null where they are one:
// then everything that it counts is there, and every number is one that it may be.
const char* why_no_block(uint8_t* data, int64_t bytes, int64_t ranks, Slot slot, const Kinds& kinds);

}  // namespace shardway::wire
