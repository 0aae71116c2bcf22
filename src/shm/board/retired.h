// Boards of groups that this rank has left, until no peer looks at them any more.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "shm/board/group_memory.h"
#include "shm/board/waiting.h"
#include "shm/memory/arena.h"

namespace shardway::shm {

// What a rank leaves behind in its arena.
struct Remains {
  std::shared_ptr<Arena> arena;
  std::shared_ptr<GroupMemory> memory;
  std::unique_ptr<Waiting> waiting;  // with the board
  std::vector<std::byte*> messages;  // blocks that may still be read
};

// Says that this rank is gone, and frees what it left once every peer is gone too, or has died. Any thread
// may call.
void retire(Remains remains);

// Frees what can be freed.
void sweep_retired();

}  // namespace shardway::shm
