// The pieces in which a long call between hosts runs.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/hosts/host_map.h"

namespace shardway {

// The lengths of the pieces in which an all-reduce or a spread broadcast of so many elements runs. While one
// crosses, the ranks of a host work on the next. More hosts get fewer pieces: each piece is messages to all
// of them.
std::vector<int64_t> call_pieces(int64_t elements, int64_t element_bytes, const HostMap& hosts);

}  // namespace shardway
