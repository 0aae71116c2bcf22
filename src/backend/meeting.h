// How ranks that have a store in common come to share memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "shm/group/group.h"
#include "shm/group/hosts.h"

namespace shardway::backend {

// Either a group in the memory of one host, or the groups of several hosts.
struct Met {
  std::shared_ptr<shm::SharedGroup> group = nullptr;
  std::optional<shm::HostGroups> hosts = std::nullopt;
  std::string name = {};  // of this meeting; another has another, on the same store too
};

// Collective. Throws c10::DistBackendError, on every rank, if ranks of one host share no memory.
Met meet(c10d::Store& store, int64_t rank, int64_t size, std::chrono::milliseconds timeout);

// The same for ranks of which it is an error to be on several hosts.
std::shared_ptr<shm::SharedGroup> meet_on_one_host(c10d::Store& store, int64_t rank, int64_t size,
                                                   std::chrono::milliseconds timeout);

}  // namespace shardway::backend
