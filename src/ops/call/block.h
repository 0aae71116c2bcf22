// The blocks of all ranks in the rows of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "ops/call/header.h"
#include "terms/block.h"
#include "terms/comparison.h"

namespace shardway {

using wire::BlockHeader;

using wire::BlockView;

inline wire::BlockRows rows_of(const Blocks& blocks) {
  return {blocks.rows.mutable_data_ptr<uint8_t>(), blocks.rows.size(1), blocks.rows.size(0)};
}

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

// Throws the same c10::ValueError on every rank, where there is a disagreement.
void raise_if_any(const std::string& disagreement);

// What the ranks come to by their blocks: collective where they differ in what a hash stands for. `index` is
// the tensor's in its list.
Agreement agreement_in(Blocks blocks, const Call& call, const Group& group, int64_t index = 0);

}  // namespace shardway
