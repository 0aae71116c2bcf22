// One rank of a calibration.
#pragma once

#include <string>

#include "cli/calibrate/trial_board.h"
#include "cli/calibrate/trials.h"

namespace shardway::cli {

// Joins the other ranks of the job, makes the trials, writes what they took to the board, and ends this
// process. An error is on the board then.
[[noreturn]] void be_trial_rank(int64_t rank, const std::string& job, const std::vector<Trial>& trials,
                                const TrialLimits& limits, const TrialBoard& board);

}  // namespace shardway::cli
