// The blocks of all ranks in the rows of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/call/header.h"
#include "terms/block.h"

namespace shardway {

using wire::BlockHeader;

// One rank's block, which has been read (check_blocks) or is being written.
class Block : public wire::BlockView {
 public:
  Block(uint8_t* data, int64_t ranks) : BlockView(data, ranks) {}
  Block(const at::Tensor& blocks, int64_t rank)
      : Block(blocks.mutable_data_ptr<uint8_t>() + rank * blocks.size(1), blocks.size(0)) {}

  // In place of the sizes, in a call that has a hash; two words fit, since there are two ranks at least.
  CallHash& hash() const { return *reinterpret_cast<CallHash*>(sizes()); }
};

// Throws c10::ValueError where a rank sent bytes that are no block.
void check_blocks(const Blocks& blocks, wire::Slot slot);

// Throws c10::ValueError when a rank has a problem or two disagree. `blocks` has one row per rank.
void compare(const at::Tensor& blocks);

bool have_same_hash(const at::Tensor& blocks);

// Of blocks whose slots hold a Call's words: throws c10::ValueError naming the first point on which two ranks
// differ.
[[noreturn]] void compare_words(const at::Tensor& blocks);

}  // namespace shardway
