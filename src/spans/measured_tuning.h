// How groups are tuned by the topology file.
#pragma once

#include "shm/group/tune.h"

namespace shardway {

// What the file that SHARDWAY_TOPOLOGY names says of groups with so many ranks on this processor. A file that
// cannot be read says nothing here: whoever plans with it hears of it.
shm::TuningPins pins_of_topology_file(int64_t ranks);

}  // namespace shardway
