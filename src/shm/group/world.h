// Parts of a group.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shm/group/group.h"

namespace shardway::shm {

// A group that is to be split, as one of its ranks sees it.
struct Whole {
  int64_t rank = 0;
  int64_t size = 1;
  Exchange exchange = {};
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

// Joins some ranks of the whole, this one among them. Collective over the whole, in which every rank names
// the part that it is in. Exchanges twice; throws as SharedGroup::join does.
JoinedGroup join_part(const Whole& whole, const std::vector<int64_t>& members, bool avoids_crowds = false);

// Makes a group of the ranks of each color, ordered by key and then by rank. Collective over the whole.
// Throws std::invalid_argument, on every rank, if a color is negative or ranks of one color share no memory.
Subgroup split(const Whole& whole, int64_t color, int64_t key);

}  // namespace shardway::shm
