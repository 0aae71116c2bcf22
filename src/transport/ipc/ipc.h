// A GPU that the ranks of a host share, as a transport of CUDA tensors.
#pragma once

#include <memory>

#include "transport/common/transport.h"
#include "transport/shm/shm_engine.h"

namespace shardway {

// The ranks meet in this memory, which has room for the flags of one such transport: as long as one lives,
// everybody who asks gets it. Making it is local, and needs no GPU.
std::shared_ptr<Transport> ipc_transport_of(const std::shared_ptr<ShmEngine>& memory);

}  // namespace shardway
