// A sweep as a picture.
#pragma once

#include <string>
#include <vector>

#include "cli/sweep.h"

namespace shardway::cli {

// An SVG: the price of the best plan over the length, both on scales of equal factors. Each stretch with one
// best plan is a line with a number; below, the numbers say which plan that is. Prices by assumed figures are
// called estimates. It follows the reader's light or dark colours.
std::string sweep_svg(const Layout& from, const Layout& to, const Sweep& sweep,
                      const std::vector<SweepRow>& rows, bool is_estimate);

}  // namespace shardway::cli
