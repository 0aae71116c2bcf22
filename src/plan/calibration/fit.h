// The figures and prices that fit measured calls best.
#pragma once

#include "plan/calibration/calibration.h"

namespace shardway {

// The points of even calls, made to rise with the bytes, and which bytes count, by calls of uneven parts.
// Calls that are held out do not count. Throws std::invalid_argument if a kind is missing.
PriceTable fitted_table(const std::vector<MeasuredCall>& calls, int64_t ranks);

// The topology of one host that prices these calls best: base, latency, and bandwidths of links, copies and
// reductions. The sum of the squared relative errors is the least of all figures that are not negative. Only
// even calls that are not held out count. The figures between hosts stay assumed. Throws
// std::invalid_argument if too few calls are left for that. It has no tables.
Topology fitted_topology(const std::vector<MeasuredCall>& calls, int64_t ranks);

}  // namespace shardway
