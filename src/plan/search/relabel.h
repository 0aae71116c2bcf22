// Which ranks hold most of what the positions of a mesh are to have.
#pragma once

#include <cstdint>
#include <vector>

#include "shardway/layout.h"

namespace shardway {

// Tensors that move alike.
struct AlikeMoves {
  Layout from;
  Layout to;
  int64_t tensors = 1;
};

// Chooses a rank of `candidates` for each position of the targets' meshes, which have the same ranks in the
// same order. A direct exchange to these ranks sends the fewest bytes: a rank keeps what it holds, be it a
// value or an addend, and pulls the rest.
std::vector<int64_t> ranks_that_hold_most(const std::vector<AlikeMoves>& moves,
                                          const std::vector<int64_t>& candidates);

}  // namespace shardway
