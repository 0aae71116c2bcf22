// Groups of ranks on several hosts, in a program without c10d.
#pragma once

#include <chrono>

#include "shardway/group.h"
#include "shardway/message_engine.h"

namespace [[gnu::visibility("default")]] shardway {

// Joins the ranks of the engine to a group for CPU tensors: through shared memory inside a host, by the
// engine between hosts. Collective. Throws as join does. `timeout` is how long a rank waits for another, now
// and in every call.
[[nodiscard]] Group join_hosts(const EngineMaker& make,
                               std::chrono::milliseconds timeout = std::chrono::minutes(30));

}  // namespace shardway
