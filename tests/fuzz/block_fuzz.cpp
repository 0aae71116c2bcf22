// Any bytes are a block or are refused, and what is taken for one can be used: everything that it counts is
// there. The first byte is the number of ranks, the second what the slot holds; the rest lies in memory of
// exactly its length.
#include <cstdlib>
#include <cstring>
#include <memory>

#include "terms/block.h"

namespace shardway::wire {
namespace {

constexpr Kinds kKinds{
    .bytes_of_dtype = [](int64_t dtype) -> int64_t { return dtype >= 0 && dtype < 40 ? 1 << dtype % 5 : 0; },
    .devices = 21};

volatile uint8_t read_at_all = 0;

void read_all(const uint8_t* data, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) read_at_all = read_at_all + data[i];
}

// As the collectives use it.
void use(const BlockView& block, int64_t ranks) {
  const BlockHeader& header = block.header();
  if (header.slot_bytes > 0) read_all(block.slot(), header.slot_bytes);
  if (header.has_problem != 0 || header.has_tensor == 0) return;
  if (header.ndim > kMaxDims || header.shape[header.dim] < 0) std::abort();
  int64_t total = 0;
  for (int64_t rank = 0; rank < ranks && header.has_sizes != 0; ++rank) total += block.sizes()[rank];
  if (total < 0) std::abort();
}

void read_block(const uint8_t* data, size_t size) {
  if (size < 2) return;
  const int64_t ranks = data[0] % 8 + 1;
  const Slot slot = data[1] % 2 == 0 ? Slot::tensor : Slot::words;
  const auto bytes = static_cast<int64_t>(size) - 2;
  // As long as a row at least, but no byte of it may be read that did not come.
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[static_cast<size_t>(bytes)]);
  std::memcpy(copy.get(), data + 2, static_cast<size_t>(bytes));
  if (why_no_block(copy.get(), bytes, ranks, slot, kKinds) != nullptr) return;
  if (slot == Slot::tensor) use(BlockView(copy.get(), ranks), ranks);
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
