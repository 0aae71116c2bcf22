// Costs as text: to two decimals, or to two digits if they are estimates.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "plan/geometry/number_text.h"

namespace shardway {

// Whether prices by the topology with this source rest on assumed figures.
inline bool gives_estimates(const std::string& topology_source) { return topology_source == "assumed"; }

// 371.93 is 370, 0.0625 is 0.062.
inline std::string two_digits(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1e", value);
  const double rounded = std::strtod(text, nullptr);
  const double size = std::abs(rounded);
  const int decimals = size == 0 ? 0 : std::max(0, 1 - static_cast<int>(std::floor(std::log10(size))));
  std::snprintf(text, sizeof text, "%.*f", std::min(decimals, 12), rounded);
  return text;
}

inline std::string cost_text(double us, bool is_estimate) {
  return is_estimate ? two_digits(us) : two_decimals(us);
}

// "371.93 us", or "est. 370 us"
inline std::string cost_in_us(double us, bool is_estimate) {
  return (is_estimate ? "est. " : "") + cost_text(us, is_estimate) + " us";
}

}  // namespace shardway
