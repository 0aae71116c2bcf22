// A rank's part of a route as numbers, which it tells to the other ranks of its host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/hosts/two_levels.h"

namespace shardway {

// More than any route has: a larger length is an error of its teller.
inline constexpr int64_t kMostRouteNumbers = int64_t{1} << 28;

std::vector<int64_t> numbers_of(const ToldRoute& told);

// The part of rank `rank` of `ranks`. Throws c10::DistBackendError if the numbers describe no such part.
ToldRoute route_of_numbers(std::span<const int64_t> numbers, int64_t rank, int64_t ranks);

}  // namespace shardway
