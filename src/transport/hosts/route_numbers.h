// A rank's part of a route as numbers, which it tells to the other ranks of its host.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/hosts/two_levels.h"
#include "terms/numbers.h"

namespace shardway {

// More than any route has: a larger length is an error of its teller.
inline constexpr int64_t kMostRouteNumbers = int64_t{1} << 28;

void append_route(std::vector<int64_t>& to, const ToldRoute& told);

// The part of rank `rank` of `ranks`. Throws std::invalid_argument if the numbers describe no such part.
ToldRoute next_route(wire::NumberReader& reader, int64_t rank, int64_t ranks);

}  // namespace shardway
