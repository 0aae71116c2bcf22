// The shared memory of a group as a transport of CPU tensors.
#pragma once

#include <memory>

#include "shm/group/group.h"
#include "transport/common/transport.h"
#include "transport/shm/shm_errors.h"

namespace shardway {

class ShmEngine;

std::shared_ptr<Transport> make_shm_transport(std::shared_ptr<shm::SharedGroup> group, PartOfGroup part = {});

// The job knows the ranks by these numbers; by 0, 1, … if there are none.
std::shared_ptr<Transport> make_shm_transport(std::shared_ptr<ShmEngine> engine,
                                              std::vector<int64_t> global_ranks = {});

// Null if the transport uses none, or if its ranks have not found out yet.
std::shared_ptr<ShmEngine> shm_engine_of(Transport& transport);

}  // namespace shardway
