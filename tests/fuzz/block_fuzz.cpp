// Any bytes are a block or are refused, and what is taken for one can be used: everything that it counts is
// there. The first byte is the number of ranks, the second what the slot holds; the rest lies in memory of
// exactly its length.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "terms/block.h"
#include "terms/comparison.h"

namespace shardway::wire {
namespace {

constexpr Kinds kKinds{
    .bytes_of_dtype = [](int64_t dtype) -> int64_t { return dtype >= 0 && dtype < 40 ? 1 << dtype % 5 : 0; },
    .devices = 21,
    .dtype_name = [](int64_t dtype) { return std::to_string(dtype); },
    .device_name = [](int64_t device) { return std::to_string(device); }};

volatile uint8_t read_at_all = 0;

void read_all(const uint8_t* data, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) read_at_all = read_at_all + data[i];
}

// As the calls use it.
void use(const BlockView& block, int64_t ranks) {
  const BlockHeader& header = block.header();
  if (header.slot_bytes > 0) read_all(block.slot(), header.slot_bytes);
  if (header.has_problem || !header.has_tensor) return;
  if (header.ndim > kMaxDims || block.extent() < 0) std::abort();
  int64_t total = 0;
  for (int64_t rank = 0; rank < ranks && header.has_sizes; ++rank) total += block.sizes()[rank];
  if (total < 0) std::abort();
}

// Every rank says this, but one which says it with another byte.
void compare(const std::vector<uint8_t>& said, int64_t ranks, Slot slot, size_t odd_byte) {
  const size_t bytes = said.size();
  const auto row_bytes = static_cast<int64_t>((bytes + 15) / 16 * 16);
  std::vector<uint8_t> rows(static_cast<size_t>(row_bytes * ranks));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    uint8_t* row = rows.data() + rank * row_bytes;
    std::memcpy(row, said.data(), bytes);
    if (rank == ranks - 1) row[odd_byte % bytes] ^= 1;
    if (why_no_block(row, static_cast<int64_t>(bytes), ranks, slot, kKinds) != nullptr) return;
  }
  const BlockRows blocks(rows.data(), row_bytes, ranks);
  if (slot == Slot::words) {
    disagreement_in_words(blocks);
  } else if (disagreement(blocks, kKinds).empty()) {
    have_same_hash(blocks);
  }
}

void read_block(const uint8_t* data, size_t size) {
  if (size < 2) return;
  const int64_t ranks = data[0] % 8 + 1;
  const Slot slot = data[1] % 2 == 0 ? Slot::tensor : Slot::words;
  const auto bytes = static_cast<int64_t>(size) - 2;
  // No byte may be read that did not come.
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[static_cast<size_t>(bytes)]);
  std::memcpy(copy.get(), data + 2, static_cast<size_t>(bytes));
  if (why_no_block(copy.get(), bytes, ranks, slot, kKinds) != nullptr) return;
  if (slot == Slot::tensor) use(BlockView(copy.get(), ranks), ranks);
  compare({data + 2, data + size}, ranks, slot, data[1] / 2);
}

// Blocks of a list, one behind the other, each taken out into memory of its length.
void read_list(const uint8_t* data, size_t size) {
  if (size < 1) return;
  const int64_t ranks = data[0] % 8 + 1;
  const auto bytes = static_cast<int64_t>(size) - 1;
  for (int64_t at = 0; at < bytes;) {
    const int64_t length = block_bytes(data + 1 + at, bytes - at, ranks);
    if (length == 0) return;
    if (length < 0 || length > bytes - at) std::abort();
    const std::unique_ptr<uint8_t[]> copy(new uint8_t[static_cast<size_t>(length)]);
    std::memcpy(copy.get(), data + 1 + at, static_cast<size_t>(length));
    if (why_no_block(copy.get(), length, ranks, Slot::tensor, kKinds) != nullptr) return;
    use(BlockView(copy.get(), ranks), ranks);
    at += length;
  }
}

}  // namespace
}  // namespace shardway::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shardway::wire::read_block(data, size);
  shardway::wire::read_list(data, size);
  return 0;
}
