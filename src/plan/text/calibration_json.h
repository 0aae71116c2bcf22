// The part of a topology file that says how its figures were measured.
#pragma once

#include <string>

#include "plan/price/calibration.h"
#include "plan/text/json.h"

namespace shardway {

// The text of a topology file. Throws std::invalid_argument naming the file if it cannot be read.
std::string read_topology_file(const std::string& path);

// The field `measured`. Refuses what is not there, not known or impossible.
Calibration calibration_from(const JsonField& measured);

}  // namespace shardway
