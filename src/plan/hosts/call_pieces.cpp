#include "plan/hosts/call_pieces.h"

#include <algorithm>

#include "shardway/route.h"

namespace shardway {
namespace {

// Smaller pieces cost more in meetings and messages than they hide (docs/decisions/0021).
constexpr int64_t kLeastBytes = 2 << 20;
constexpr int64_t kMostPieces = 8;

// Pieces times hosts: about half the messages of a rank that may be under way.
constexpr int64_t kMostToHosts = 256;

}  // namespace

std::vector<int64_t> call_pieces(int64_t elements, int64_t element_bytes, const HostMap& hosts) {
  const int64_t most = std::clamp<int64_t>(kMostToHosts / hosts.hosts(), 1, kMostPieces);
  return chunk_sizes(elements, std::clamp<int64_t>(elements * element_bytes / kLeastBytes, 1, most));
}

}  // namespace shardway
