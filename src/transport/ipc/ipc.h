// A GPU that the ranks of a host share, as a transport of CUDA tensors.
#pragma once

#include <memory>

#include "transport/common/transport.h"
#include "transport/shm/shm_engine.h"

namespace shardway {

// The ranks meet in this memory. Making it is local, and needs no GPU.
std::shared_ptr<Transport> make_ipc_transport(std::shared_ptr<ShmEngine> memory);

}  // namespace shardway
