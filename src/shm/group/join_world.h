// The group of all ranks of a program.
#pragma once

#include <memory>
#include <string>

#include "shardway/join.h"
#include "shardway/message_engine.h"
#include "shm/group/group.h"
#include "shm/group/hosts.h"

namespace shardway::shm {

// All ranks of a program. Either they share memory and have a group; or there is an engine between their
// hosts; or they have nothing, and `why_not` says why.
struct World {
  std::shared_ptr<SharedGroup> group = nullptr;
  std::shared_ptr<MessageEngine> engine = nullptr;
  HostGroups hosts = {};  // with an engine
  std::string why_not = {};
};

// Collective. Both throw std::invalid_argument if the options or the environment make no sense, and PeerLost
// for a rank that does not come. The second throws std::runtime_error if the engine fails.
World join_world(const shardway::JoinOptions& options);
World join_world(const EngineMaker& make, std::chrono::milliseconds timeout);

}  // namespace shardway::shm
