// The bytes that a rank sends before a collective, and how they are laid out.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "ops/header.h"

namespace shardway {

inline constexpr uint32_t kMagic = 0x32776873;  // "shw2"

// The fixed part of a block. It is followed by two lists of one int64 per rank (sizes, recv_sizes) and by
// the slot, which holds the payload or the text of the problem.
struct Header {
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
  uint8_t is_list = 0;
  uint8_t backward_of = 0;  // a collective, counted from 1; 0: this is no gradient
  std::array<uint8_t, 6> unused = {};
  uint64_t forward_number = 0;  // of the call whose gradient this is
  int64_t slot_bytes = -1;  // -1: the payload comes in a second round
  int64_t out_size = -1;
  int64_t root = -1;
  int64_t dim_without_tensor = 0;  // as given, on a rank that brings no tensor
  std::array<int64_t, kMaxDims> shape = {};
};
static_assert(sizeof(Header) % 16 == 0);

// One rank's block within the rows of all.
class Block {
 public:
  Block(uint8_t* data, int64_t ranks) : data_(data), ranks_(ranks) {}
  Block(const at::Tensor& blocks, int64_t rank)
      : Block(blocks.mutable_data_ptr<uint8_t>() + rank * blocks.size(1), blocks.size(0)) {}

  Header& header() const { return *reinterpret_cast<Header*>(data_); }
  int64_t* sizes() const { return reinterpret_cast<int64_t*>(data_ + sizeof(Header)); }
  int64_t* recv_sizes() const { return sizes() + ranks_; }

  // In place of the sizes, in a call that has a hash; two words fit, since there are two ranks at least.
  CallHash& hash() const { return *reinterpret_cast<CallHash*>(sizes()); }

  uint8_t* slot() const { return reinterpret_cast<uint8_t*>(recv_sizes() + ranks_); }

 private:
  uint8_t* data_;
  int64_t ranks_;
};

// Throws c10::ValueError when a rank has a problem or two disagree. `blocks` has one row per rank.
void compare(const at::Tensor& blocks);

bool have_same_hash(const at::Tensor& blocks);

// Of blocks whose slots hold a Call's words: throws c10::ValueError naming the first point on which two ranks
// differ.
[[noreturn]] void compare_words(const at::Tensor& blocks);

}  // namespace shardway
