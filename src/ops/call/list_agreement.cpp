// What the ranks tell one another before a call of a list: each sends its blocks one after another, as many
// as a row has room for, and the rest in further rows.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>

#include "ops/call/block.h"
#include "ops/call/header.h"
#include "ops/call/numbering.h"
#include "transport/memory/warm_memory.h"

namespace shardway {
namespace {

using wire::aligned;
using wire::longest_line;

// The length of the rows after the first, by which time the ranks know that they are in the same call.
constexpr int64_t kLaterRowBytes = 32 << 10;

// How much of a list one exchange takes.
struct RowPlan {
  int64_t bytes = 0;
  size_t blocks = 0;
};

// The first row leaves half of its room to the tensors.
RowPlan first_row(const Group& group) {
  const int64_t bytes = row_bytes(group);
  return {.bytes = bytes,
          .blocks = static_cast<size_t>(std::max<int64_t>(1, bytes / 2 / longest_line(group.size())))};
}

RowPlan later_row(const Group& group) {
  const int64_t line = longest_line(group.size());
  const int64_t bytes = std::max(kLaterRowBytes, line);
  return {.bytes = bytes, .blocks = static_cast<size_t>(bytes / line)};
}

// A rank's blocks from the tensor `begin` on. Small tensors are included while there is room.
at::Tensor row_of(const std::vector<Call>& calls, size_t begin, const RowPlan& plan, const Group& group) {
  const bool is_single = calls.size() == 1;  // also if this rank has no tensors, or a problem
  const size_t count = is_single ? 1 : std::min(plan.blocks, calls.size() - begin);
  int64_t room = plan.bytes - static_cast<int64_t>(count) * longest_line(group.size());
  std::vector<at::Tensor> blocks;
  int64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    blocks.push_back(block_of(calls[is_single ? 0 : begin + i], group, room));
    const BlockView block(blocks.back().mutable_data_ptr<uint8_t>(), group.size());
    room -= aligned(std::max(block.header().slot_bytes, 0));
    total += aligned(blocks.back().numel());
  }
  at::Tensor row = warm_empty({total}, at::kByte);
  auto* to = row.mutable_data_ptr<uint8_t>();
  for (const at::Tensor& block : blocks) {
    std::memcpy(to, block.const_data_ptr(), static_cast<size_t>(block.numel()));
    to += aligned(block.numel());
  }
  return row;
}

// Takes every rank's blocks out of one exchange, tensor by tensor.
class BlockReader {
 public:
  explicit BlockReader(Blocks rows) : rows_(std::move(rows)), at_(rows_.bytes.size(), 0) {}

  // Returns the next block of every rank. A rank that has no tensors sends one block, which counts for every
  // tensor.
  Blocks next() {
    const int64_t ranks = rows_.rows.size(0);
    std::vector<int64_t> lengths;
    for (int64_t rank = 0; rank < ranks; ++rank) lengths.push_back(length_on(rank));
    Blocks blocks{.number = rows_.number};
    const int64_t longest = aligned(*std::max_element(lengths.begin(), lengths.end()));
    blocks.rows = warm_empty({ranks, longest}, at::kByte);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t length = lengths[static_cast<size_t>(rank)];
      auto* to = blocks.rows.mutable_data_ptr<uint8_t>() + rank * longest;
      std::memcpy(to, block_on(rank), static_cast<size_t>(length));
      blocks.bytes.push_back(length);
      const bool has_more = length > 0 && BlockView(to, ranks).header().has_tensor;
      if (has_more) at_[static_cast<size_t>(rank)] += length;
    }
    return blocks;
  }

 private:
  const uint8_t* block_on(int64_t rank) const {
    return rows_.rows.const_data_ptr<uint8_t>() + rank * rows_.rows.size(1) + at_[static_cast<size_t>(rank)];
  }
  int64_t length_on(int64_t rank) const {
    const int64_t left = rows_.bytes[static_cast<size_t>(rank)] - at_[static_cast<size_t>(rank)];
    return wire::block_bytes(block_on(rank), left, rows_.rows.size(0));
  }

  Blocks rows_;
  std::vector<int64_t> at_;  // by rank: where its next block begins
};

size_t length_in(const Blocks& blocks) {
  for (int64_t rank = 0; rank < blocks.rows.size(0); ++rank) {
    const BlockView block = rows_of(blocks)[rank];
    if (block.header().has_tensor) return block.header().list_length;
  }
  return 0;
}

}  // namespace

std::vector<Agreement> agree(const std::vector<Call>& calls, const Group& group) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return numbered(group, [&] {
    std::vector<Agreement> agreed;
    slot_bytes_of(group, name_of(calls[0].collective));  // before first_row asks: errors have the op's name
    RowPlan plan = first_row(group);
    for (size_t length = 1; agreed.size() < length; plan = later_row(group)) {
      const at::Tensor mine = row_of(calls, agreed.size(), plan, group);
      BlockReader reader(gathered(calls[0], mine, plan.bytes, group, kHeaders));
      for (size_t i = 0; i < plan.blocks && agreed.size() < length; ++i) {
        const Blocks blocks = reader.next();
        agreed.push_back(agreement_in(blocks, calls[0], group, static_cast<int64_t>(agreed.size())));
        length = length_in(blocks);
      }
    }
    return agreed;
  });
}

}  // namespace shardway
