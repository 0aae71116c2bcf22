// Which ranks of a host carry what crosses, where a call may choose.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/hosts/host_map.h"

namespace shardway {

// A rank of a host carries no less than this, unless it carries everything. A message, and whoever waits for
// it, costs as much as some hundred KiB on the wire, most where ranks share cores (docs/decisions/0021).
inline constexpr int64_t kLeastCarriedBytes = 512 << 10;

// The first ranks of the host: as many as have enough to carry if they share these bytes, one at least.
std::vector<int64_t> carriers_of(const HostMap& hosts, int64_t host, int64_t bytes);

}  // namespace shardway
