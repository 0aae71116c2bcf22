// The groups of a program: all of its ranks, and parts of a group.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shardway/join.h"
#include "shm/group/group.h"

namespace shardway::shm {

// Joins all ranks of a program, or says why they have no group. Throws std::invalid_argument if the options
// or the environment make no sense, and PeerLost for a rank that does not come.
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

// Makes a group of the ranks of each color, ordered by key and then by rank. Collective over the whole.
// Throws std::invalid_argument, on every rank, if a color is negative or ranks of one color share no memory.
SplitGroup split(const Whole& whole, int64_t color, int64_t key);

}  // namespace shardway::shm
