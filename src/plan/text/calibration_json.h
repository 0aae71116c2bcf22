// The parts of a topology file: its figures, and how they were measured.
#pragma once

#include <vector>

#include "plan/calibration/calibration.h"
#include "plan/text/json.h"

namespace shardway {

// Of a whole file, without what its runs say.
Topology topology_from(const JsonField& file);

// The field `measured`. Refuses what is not there, not known or impossible.
Calibration calibration_from(const JsonField& measured);

// Of a whole file, the newest run first. Refuses two that have the same number of ranks.
std::vector<Calibration> runs_from(const JsonField& file);

Json json_of(const Calibration& calibration);

}  // namespace shardway
