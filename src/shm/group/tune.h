// How a group is tuned: by what SHARDWAY_TUNING pins, else by the default of the processor.
#pragma once

#include <vector>

#include "shm/group/group.h"
#include "shm/join/handshake.h"

namespace shardway::shm {

// Returns the tuning of a group whose ranks said these hellos; it is the same on every rank. What the options
// give takes precedence over all else. tuning_stats() shows the result.
Tuning tune(const GroupOptions& options, const std::vector<Hello>& hellos, bool every_rank_has_a_core);

}  // namespace shardway::shm
