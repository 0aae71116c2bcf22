// One rank of `shardway launch`: a process, and what it prints.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shm/memory/file.h"

namespace shardway::cli {

// More ranks than this on one host are a typing error.
inline constexpr int64_t kMostRanks = 1024;

struct LaunchCall {
  int64_t ranks = 1;         // up to kMostRanks
  bool keeps_going = false;  // however many ranks fail
  int64_t may_lose = 0;      // so many may fail: the others go on, and the exit code is 0
  std::vector<std::string> command = {};
};

// What is the same for all ranks of a launch.
struct LaunchIdentity {
  std::string job = {};  // a name that no other launch has
  uint16_t port = 0;     // free on this host, for programs that meet over TCP
  rlimit files = {};     // that a rank may open; the launcher itself may need more
};

// Throws std::invalid_argument where the launcher may not open as many files as the ranks need.
LaunchIdentity fresh_launch(const LaunchCall& call);

struct RankProcess {
  int64_t rank = 0;
  pid_t pid = -1;  // it leads a process group
  shm::File out = {};
  shm::File err = {};
};

// Starts a rank. Throws std::invalid_argument where the program cannot be run.
RankProcess start_rank(const LaunchCall& call, const LaunchIdentity& launch, int64_t rank);

}  // namespace shardway::cli
