// The blocks of all ranks in the rows of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

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

// Of the exchange of one call.
int64_t row_bytes(const Group& group);

// A rank's block. Its tensor rides in it where that takes at most `slot_bytes`; with -1 it does not.
at::Tensor block_of(const Call& call, const Group& group, int64_t slot_bytes);

// A block with these words in its slot.
at::Tensor text_block(const Call& call, const Group& group, const std::string& text);

// What other ranks need of a rank's tensor.
Wanted wanted_of(const Call& call, const Group& group);

// Every rank's block, or row of blocks: collective.
Blocks gathered(const Call& call, const at::Tensor& mine, int64_t row_bytes, const Group& group,
                uint64_t mark);

inline constexpr uint64_t kHeaders = shm::mark_of("headers");

// Throws c10::ValueError where a rank sent bytes that are no block.
void check_blocks(const Blocks& blocks, wire::Slot slot);

// Throws c10::ValueError when a rank has a problem or two disagree. `blocks` has one row per rank. `index` is
// the tensor's in its list.
void compare(const at::Tensor& blocks, int64_t index);

// What the ranks come to by their blocks: collective where they differ in what a hash stands for.
Agreement agreement_in(Blocks blocks, const Call& call, const Group& group, int64_t index = 0);

bool have_same_hash(const at::Tensor& blocks);

// Of blocks whose slots hold a Call's words: throws c10::ValueError naming the first point on which two ranks
// differ.
[[noreturn]] void compare_words(const at::Tensor& blocks);

}  // namespace shardway
