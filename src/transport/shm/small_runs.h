// Small tensors of one dim, as runs of bytes. src/shm moves them with less work than boxes, which matters
// only if there is little to move.
#pragma once

#include <optional>

#include "shm/calls/contiguous.h"
#include "transport/common/transport.h"

namespace shardway {

// Returns nothing unless the tensors are such, and every rank sends at most one box to each. Other ranks need
// not come to the same answer: peers read the runs as boxes, too.
std::optional<shm::ContiguousCall> small_runs_of(const RouteCall& call);

}  // namespace shardway
