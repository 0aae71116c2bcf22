// What a rank works with in a group, call after call.
#pragma once

#include <memory>

#include "shm/arena.h"
#include "shm/board.h"
#include "shm/mailbox.h"
#include "shm/waiting.h"
#include "shm/ways.h"

namespace shardway::shm {

struct Desk {
  std::shared_ptr<Arena> arena;
  std::unique_ptr<Waiting> waiting;
  std::unique_ptr<Mailbox> mailbox;
  Ways ways = {};
  Payloads payloads = {};
};

}  // namespace shardway::shm
