// One rank without others.
#pragma once

#include <memory>

#include "transport/common/transport.h"

namespace shardway {

// Moves only the rank's own boxes.
std::shared_ptr<Transport> lone_transport();

}  // namespace shardway
