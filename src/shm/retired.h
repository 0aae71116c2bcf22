// Boards of groups that this rank has left, until no peer looks at them any more.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "shm/arena.h"
#include "shm/waiting.h"

namespace shardway::shm {

// Frees the board, and the messages that may still be read, once every peer has left the group too, or is
// gone. Any thread may call.
void retire(std::shared_ptr<Arena> arena, std::unique_ptr<Waiting> waiting, std::vector<std::byte*> messages);

// Frees what can be freed.
void sweep_retired();

}  // namespace shardway::shm
