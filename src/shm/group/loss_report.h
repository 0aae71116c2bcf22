// What a rank prints when a peer died or did not come in time.
#pragma once

#include <cstdint>
#include <string>

#include "shm/board/waiting.h"

namespace shardway::shm {

// Whether the group ended because a process died or a timeout passed. Only then there is something to report.
bool is_loss(const Waiting& waiting);

// Reports `why`, and what every rank of the group is doing, as this rank sees it (record/loss.h).
void report_loss(const Waiting& waiting, uint64_t group, const std::string& why);

}  // namespace shardway::shm
