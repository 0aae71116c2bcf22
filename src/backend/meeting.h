// How ranks that have a store in common come to share memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "shm/group/group.h"

namespace shardway::backend {

// Collective. Throws c10::DistBackendError, on every rank, if the ranks do not share a host.
std::shared_ptr<shm::SharedGroup> meet(c10d::Store& store, int64_t rank, int64_t size,
                                       std::chrono::milliseconds timeout);

}  // namespace shardway::backend
