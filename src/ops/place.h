// The ranks that share a MeshTensor, and where this one stands among them.
#pragma once

#include "plan/stages.h"
#include "shardway/mesh_tensor.h"

namespace shardway {

struct MeshTensor::Place {
  Group group;
  GroupRanks ranks;

  explicit Place(const Group& g) : group(g), ranks(g.global_ranks()) {}

  int64_t number() const { return ranks.number_of(group.rank()); }
};

}  // namespace shardway
