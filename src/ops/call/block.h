// The blocks of all ranks, as the rows of a tensor.
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

// The length of a row in the exchange of one call.
int64_t row_bytes(const Group& group);

// This rank's block. It contains the call's tensor if that fits in `slot_bytes`; never if that is -1.
at::Tensor block_of(const Call& call, const Group& group, int64_t slot_bytes);

// A block with these words in its slot.
at::Tensor text_block(const Call& call, const Group& group, const std::string& text);

// What other ranks need from this rank's tensor.
Wanted wanted_of(const Call& call, const Group& group);

// Every rank's block, or row of blocks: collective.
Blocks gathered(const Call& call, const at::Tensor& mine, int64_t row_bytes, const Group& group,
                uint64_t mark);

inline constexpr uint64_t kHeaders = shm::mark_of("headers");

// Throws c10::ValueError if a rank sent bytes that are not a block.
void check_blocks(const Blocks& blocks, wire::Slot slot);

// Throws the disagreement as c10::ValueError, unless it is empty. The error is the same on every rank.
void raise_if_any(const std::string& disagreement);

// What the ranks agree on according to their blocks. Collective if their hashes differ: then they exchange
// what the hashes stand for. Throws the same c10::ValueError on every rank if they disagree. `index` is the
// tensor's index in its list.
Agreement agreement_in(Blocks blocks, const Call& call, const Group& group, int64_t index = 0);

}  // namespace shardway
