// Which ranks of a host carry what crosses, where a call may choose.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/hosts/host_map.h"

namespace shardway {

// A rank of a host carries no less than this, unless it carries everything. A message, and whoever waits for
// it, costs as much as some hundred KiB on the wire, most where ranks share cores (docs/decisions/0021).
inline constexpr int64_t kLeastCarriedBytes = 512 << 10;

// The first ranks of the host: as many as have enough to carry if they share a run of so many bytes, one at
// least. Parts of the run cross in one route or in two; in two, each carrier makes twice the messages.
std::vector<int64_t> carriers_of(const HostMap& hosts, int64_t host, int64_t bytes, int64_t routes);

}  // namespace shardway
