// The groups of a program: all of its ranks, and parts of a group.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shardway/join.h"
#include "shm/group/group.h"

namespace shardway::shm {

// All ranks of a program, or why they have no group. Throws std::invalid_argument where the options or the
// environment make no sense, PeerLost for a rank that does not come.
JoinedGroup join_world(const shardway::JoinOptions& options);

// A group that is to be split, as one of its ranks sees it.
struct Whole {
  int64_t rank = 0;
  int64_t size = 1;
  Exchange exchange = {};
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

// This rank's part, and the ranks of the whole that are in it.
struct SplitGroup {
  std::shared_ptr<SharedGroup> group = nullptr;
  std::vector<int64_t> members = {};
};

// The ranks of one color by key and rank. Collective over the whole. Throws std::invalid_argument, on every
// rank, for a negative color and where ranks of one color share no memory.
SplitGroup split(const Whole& whole, int64_t color, int64_t key);

}  // namespace shardway::shm
