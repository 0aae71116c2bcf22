// The verdict on what all ranks said before a call. Every rank has the same blocks, so every rank comes to
// the same verdict, in the same words. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "terms/block.h"

namespace shardway::wire {

// A block per rank, in rows of equal length. Whoever looks into a block has checked that it is one.
class BlockRows {
 public:
  BlockRows(uint8_t* data, int64_t row_bytes, int64_t ranks)
      : data_(data), row_bytes_(row_bytes), ranks_(ranks) {}

  uint8_t* row(int64_t rank) const { return data_ + rank * row_bytes_; }
  BlockView operator[](int64_t rank) const { return {row(rank), ranks_}; }
  const BlockHeader& header(int64_t rank) const { return (*this)[rank].header(); }
  int64_t size() const { return ranks_; }

 private:
  uint8_t* data_;
  int64_t row_bytes_;
  int64_t ranks_;
};

// Returns a sentence about the first row whose beginning, of `bytes[rank]`, is not a valid block. Empty if
// all are.
std::string why_no_blocks(const BlockRows& rows, std::span<const int64_t> bytes, Slot slot,
                          const Kinds& kinds);

// Returns a sentence: what a rank says is wrong with its call, or what two ranks disagree on. Empty if they
// agree. `index` is the tensor's index in its list.
std::string disagreement(const BlockRows& blocks, const Kinds& kinds, int64_t index = 0);

// Something that ranks may have to agree on.
enum class Point : uint8_t { dtype, device, ndim, dim, shape, op, grad, factor };

// As disagreement(), but compares two ranks on one point only.
std::string disagreement_on(Point point, const BlockRows& blocks, const Kinds& kinds, int64_t first,
                            int64_t other);

// The same sentence about something that no point names, of which each of two ranks has its own words.
struct RankWords {
  std::string words = {};
  int64_t rank = 0;
};
std::string disagreement_on(const std::string& what, Collective collective, const RankWords& first,
                            const RankWords& other);

// The sentence about two ranks that are in different calls.
std::string different_calls(const RankWords& first, const RankWords& other);

// Whether every rank has a hash and all are equal.
bool have_same_hash(const BlockRows& blocks);

// For blocks that hold a hash of what the call is about, and that in words in their slots. Returns a sentence
// about the first rank whose hash differs.
std::string disagreement_on_calls(const BlockRows& blocks);

// For blocks whose slots hold the words behind the hashes, one line per point, "name: value". Returns a
// sentence about the first point on which two ranks differ.
std::string disagreement_in_words(const BlockRows& blocks);

}  // namespace shardway::wire
