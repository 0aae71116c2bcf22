// A group of those who are left, after a death.
#pragma once

#include <chrono>
#include <optional>

#include "shardway/group.h"

namespace [[gnu::visibility("default")]] shardway {

// Returns a group on shared memory of the ranks that call this, in their order; the old group is over on
// every rank. For ranks of which some have died, or do not come: such ranks are left out when the others have
// waited for the timeout (without one: the group's own, at most 10 s). Needs nothing but the memory of the
// old group, and ranks may die meanwhile. A rank that comes too late gets a c10::DistBackendError that names
// those who went on. Throws c10::ValueError if the ranks share no memory, or have made no call yet by which
// they would know.
[[nodiscard]] Group shrink(const Group& group,
                           std::optional<std::chrono::milliseconds> timeout = std::nullopt);

}  // namespace shardway
