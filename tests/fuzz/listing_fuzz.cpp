// Any bytes are a listing or are refused by NoListing. What is read is written and read again. The first byte
// is the number of ranks.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "terms/listing.h"

namespace shardway::wire {
namespace {

constexpr Kinds kKinds{
    .bytes_of_dtype = [](int64_t dtype) -> int64_t { return dtype >= 0 && dtype < 40 ? 1 << dtype % 5 : 0; },
    .devices = 21};

void read_bytes(const uint8_t* data, size_t size) {
  if (size < 1) return;
  const int64_t ranks = data[0] % 8 + 1;
  const auto* begin = reinterpret_cast<const std::byte*>(data) + 1;
  const std::vector<std::byte> bytes(begin, begin + size - 1);
  try {
    const auto given = static_cast<int64_t>(bytes.size());
    const int64_t taken =
        listing_bytes(std::span(bytes).first(std::min<size_t>(bytes.size(), kListingStart)), given);
    const ListRecord listing =
        read_listing(std::span(bytes).first(static_cast<size_t>(taken)), ranks, kKinds);
    const ListRecord kept = listing.problem.empty() ? listing
                                                    : ListRecord{.collective = listing.collective,
                                                                 .op = listing.op,
                                                                 .grad = listing.grad,
                                                                 .problem = listing.problem};
    if (!(read_listing(written(listing), ranks, kKinds) == kept)) std::abort();
  } catch (const NoListing&) {  // refused with a sentence
  }
}

}  // namespace
}  // namespace shardway::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shardway::wire::read_bytes(data, size);
  return 0;
}
