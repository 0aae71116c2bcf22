// Looks after the ranks of `shardway launch` until all have ended.
#pragma once

#include "cli/launch/launch_call.h"

namespace shardway::cli {

// Starts the ranks, or a launcher on each host, shows what they print line by line with their rank before it,
// and passes signals on. If one fails it ends the others, unless the call lets them go on. Returns the exit
// code of the first rank that failed and may not be lost, 128 plus the signal's number if it was killed, or
// 0.
int supervise(const LaunchCall& call);

}  // namespace shardway::cli
