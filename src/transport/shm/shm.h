// The shared memory of a group as a transport of CPU tensors.
#pragma once

#include <memory>

#include "shm/group/group.h"
#include "transport/common/transport.h"

namespace shardway {

class ShmEngine;

std::shared_ptr<Transport> make_shm_transport(std::shared_ptr<shm::SharedGroup> group);
std::shared_ptr<Transport> make_shm_transport(std::shared_ptr<ShmEngine> engine);

}  // namespace shardway
