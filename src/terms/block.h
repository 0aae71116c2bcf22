// The block: the bytes by which a rank tells the others what it is about to do, before a call. A reader
// copies the bytes once and checks the copy against its length. This is the only such format: the ops, lists,
// meshes and torch.distributed's calls all send it. No torch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "terms/collective.h"
#include "terms/kinds.h"

namespace shardway::wire {

inline constexpr uint32_t kMagic = 0x33776873;  // "shw3"

// At most this much of a problem's text is told.
inline constexpr int64_t kProblemBytes = 1024;

// Stands for something that all ranks must say alike and that is too long for a block.
using CallHash = std::array<uint64_t, 2>;

// Most elements of a tensor in torch.distributed's calls, so that the sum of all ranks' counts does not
// overflow.
inline constexpr int64_t kMostElements = int64_t{1} << 48;

// The fixed part of a block, one cache line. The parts that the header announces follow it: the shape (an
// int64 per dim), a hash, and two lists of one int64 per rank (sizes, recv_sizes). The slot begins at the
// next multiple of 16: it holds the payload, or the text of the problem.
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
  uint8_t unused_bits : 2 = 0;
  int32_t dim = 0;  // as given if the rank brings no tensor; for a sparse tensor, its number of sparse dims
  int32_t root = -1;
  uint32_t list_length = 0;  // of the list that the tensor belongs to; 0: no list
  int32_t slot_bytes = -1;   // -1: the payload comes in a second round
  uint32_t unused = 0;
  uint64_t forward_number = 0;  // of the call whose gradient this is
  // In torch.distributed's calls: elements to and from each rank, unless sizes and recv_sizes list them.
  // In other calls out_size is the extent of the caller's out along dim.
  int64_t in_size = -1;
  int64_t out_size = -1;
  double factor = 1;  // of premul_sum
};
static_assert(sizeof(BlockHeader) == 64);

// Stands for the length of a list, on a rank that brings no tensors.
inline constexpr uint32_t kUnknownLength = 0xffffffff;

// The blocks of a list lie one after another, each aligned to this; so is the slot within a block.
inline constexpr int64_t kBlockAlignment = 16;
constexpr int64_t aligned(int64_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

// Bytes of a block without the contents of its slot. The header's ndim must be valid.
constexpr int64_t line_bytes(const BlockHeader& header, int64_t ranks) {
  const int64_t lists = header.has_sizes + header.has_recv_sizes;
  return aligned(int64_t{sizeof(BlockHeader)} + 8 * (header.ndim + 2 * header.has_hash + lists * ranks));
}

// The most that line_bytes can be.
constexpr int64_t longest_line(int64_t ranks) {
  return aligned(int64_t{sizeof(BlockHeader)} + 8 * (kMaxDims + 2 + 2 * ranks));
}

// A view of a block that has been read or is being written. The header comes first and says where the rest
// lies. `data` is aligned like a BlockHeader.
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

  // The tensor's extent along its dim; 0 if there is no such dim.
  int64_t extent() const {
    const int32_t dim = header().dim;
    return dim >= 0 && dim < header().ndim ? shape()[dim] : 0;
  }

  // What the block's rank sends to a rank, and what it expects from one.
  int64_t sent_to(int64_t rank) const { return header().has_sizes ? sizes()[rank] : header().in_size; }
  int64_t expected_of(int64_t rank) const {
    return header().has_recv_sizes ? recv_sizes()[rank] : header().out_size;
  }

  // The text in the slot.
  std::string_view text() const {
    return {reinterpret_cast<const char*>(slot()), static_cast<size_t>(header().slot_bytes)};
  }

 private:
  uint8_t* data_;
  int64_t ranks_;
};

// A block that is still to be written. write() sets the header's ndim, has_hash, has_sizes and has_recv_sizes
// from the other members, and slot_bytes if there is a text.
struct Draft {
  BlockHeader header = {};
  std::span<const int64_t> shape = {};
  const CallHash* hash = nullptr;
  std::span<const int64_t> sizes = {};
  std::span<const int64_t> recv_sizes = {};
  std::optional<std::string_view> text = std::nullopt;  // of which the slot holds up to kProblemBytes
};

// Bytes of the draft's block with its slot.
int64_t bytes_of(const Draft& draft, int64_t ranks);

// Writes everything but a payload.
BlockView write(const Draft& draft, int64_t ranks, uint8_t* to);

// What a block's slot holds.
enum class Slot : uint8_t { tensor, words };

// Returns how many of these bytes the block at their beginning takes, aligned; 0 if no block fits them. The
// contents are not checked.
int64_t block_bytes(const uint8_t* data, int64_t bytes, int64_t ranks);

// Returns why the bytes at the beginning of `data` are not a valid block in a group of `ranks`; null if they
// are. In a valid block everything that the header counts is present, and every number is within its range.
const char* why_no_block(uint8_t* data, int64_t bytes, int64_t ranks, Slot slot, const Kinds& kinds);

}  // namespace shardway::wire
