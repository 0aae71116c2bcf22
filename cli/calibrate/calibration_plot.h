// Measured calls beside the prices that were fitted to them, as a picture.
#pragma once

#include <string>
#include <vector>

#include "plan/text/calibration_file.h"

namespace shardway::cli {

// One picture below another for each run of the file: calls as points, hollow where they were held out of the
// fit; prices as lines; and the error of each kind.
std::string calibration_svg(const TopologyFile& file);

}  // namespace shardway::cli
