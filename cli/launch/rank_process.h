// One member of a launch as a process, and what it prints.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "cli/launch/members.h"
#include "shm/memory/file.h"

namespace shardway::cli {

// Lets the launcher read two streams of every member, and hold the lifelines. Returns the limit of open files
// before, which members keep. Throws std::invalid_argument where so many are not allowed.
rlimit make_room_for(const std::vector<LaunchMember>& members);

struct RankProcess {
  std::string title = {};
  pid_t pid = -1;  // it leads a process group
  shm::File out = {};
  shm::File err = {};
  shm::File lifeline = {};  // it reads the end of this when the launcher ends
};

// Starts a member. Throws std::invalid_argument where the program cannot be run.
RankProcess start_member(const LaunchMember& member, const rlimit& files);

}  // namespace shardway::cli
