// Calls of two legs, with one meeting. In the first leg each rank combines its share of a reduction; in the
// second each pulls the shares that it needs. Between the legs a rank waits only for those whose shares it
// pulls.
#pragma once

#include <cstdint>

#include "shm/calls/contiguous.h"
#include "shm/calls/part.h"

namespace shardway::shm {

// The parts of `first` have one input, which the header describes and the peers read by `path`. A pull of
// `second` is the whole of a peer's share, which is packed; its input is this rank's share.
void run_legs(GroupState& state, uint64_t number, const PartList& first, Path path, const Part& second);

// The same without boxes. The header of `first` is up, and all ranks have met.
void run_legs(GroupState& state, uint64_t number, ContiguousExecution& first, const ContiguousCall& second);

}  // namespace shardway::shm
