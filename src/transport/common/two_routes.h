// An all-reduce as two routes.
#pragma once

#include <memory>

#include "transport/common/repeated_moves.h"
#include "transport/common/transport.h"

namespace shardway {

// Whether the route is an all-reduce that the engine does not have, and too large for every rank to pull all
// of it from every other.
bool runs_in_two(const Route& route, const at::Tensor& x, Transport& transport);

// Each rank combines a share of the elements, straight into its place in the output. Then it takes the other
// shares from the others' outputs. Among four ranks it receives half of what it would receive if it pulled
// every addend whole. The first route is over when this returns.
//
// Example, 2 ranks with 4 elements each, seen by rank 0:
//   first  pulls [0,2) of both, which lands on [0,2)
//   second pulls [2,4) from rank 1
std::unique_ptr<Transfer> start_in_two(Transport& transport, const Route& all_reduce, const at::Tensor& x,
                                       const at::Tensor& out, const Subject& subject);

// The same, ready to be made again and again. Both tensors are contiguous.
std::unique_ptr<RepeatedMoves> repeated_in_two(RepeatsMoves& transport, const RouteCall& all_reduce);

}  // namespace shardway
