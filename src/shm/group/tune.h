// How a group is tuned: by what SHARDWAY_TUNING pins, else by what was measured, else by the default of the
// processor.
#pragma once

#include <vector>

#include "shm/group/group.h"
#include "shm/join/handshake.h"

namespace shardway::shm {

// What was measured on this machine of groups with so many ranks and a core for each. Nothing is pinned where
// nothing was.
TuningPins measured_pins(int64_t ranks);

// Who is asked for it from now on. Of a group only the first rank asks. Called before main begins.
using MeasuredPins = TuningPins (*)(int64_t ranks);
void ask_for_measured_pins(MeasuredPins measured);

// Returns the tuning of a group whose ranks said these hellos; it is the same on every rank. What the options
// give takes precedence over all else. tuning_stats() shows the result.
Tuning tune(const GroupOptions& options, const std::vector<Hello>& hellos, bool every_rank_has_a_core);

}  // namespace shardway::shm
