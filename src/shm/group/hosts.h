// Ranks of several hosts: which share one, and the group of each host.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shm/group/world.h"

namespace shardway::shm {

struct HostGroups {
  // Ranks with equal labels share memory.
  std::vector<int64_t> labels = {};
  // The name of each rank's host, as the host has it.
  std::vector<std::string> names = {};
  // Of the ranks of this host, in their order. Null if they share no memory.
  std::shared_ptr<SharedGroup> own = nullptr;
  // Why ranks that are said to share a host share no memory, so that each counts as a host of its own. Empty
  // if there are none.
  std::string why_apart = {};
};

// Collective over the whole, with the same labels on every rank. Ranks say by boot id and network namespace
// which host they are on; the handshake of each host's group confirms it. Throws as SharedGroup::join does.
HostGroups join_hosts(const Whole& whole);

}  // namespace shardway::shm
