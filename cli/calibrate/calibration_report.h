// What a calibration found, as a topology and as text.
#pragma once

#include <optional>
#include <string>

#include "cli/calibrate/trials.h"

namespace shardway::cli {

struct MeasuredTopology {
  Topology topology = {};
  Calibration calibration = {};
};

// `about` has the machine and the ranks. Nothing if a trial was repeated less than twice: sizes would be
// missing.
std::optional<MeasuredTopology> topology_of(const std::vector<Trial>& trials, const TrialResults& results,
                                            Calibration about);

// The figures, the errors of each kind, and what speaks against them.
std::string text_of(const MeasuredTopology& measured);

}  // namespace shardway::cli
