#include "plan/hosts/carriers.h"

#include <algorithm>

namespace shardway {

std::vector<int64_t> carriers_of(const HostMap& hosts, int64_t host, int64_t bytes, int64_t routes) {
  const std::vector<int64_t>& ranks = hosts.ranks_of(host);
  const auto count =
      std::clamp<int64_t>(bytes / (routes * kLeastCarriedBytes), 1, static_cast<int64_t>(ranks.size()));
  return {ranks.begin(), ranks.begin() + count};
}

}  // namespace shardway
