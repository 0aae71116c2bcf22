// The ranks that share a MeshTensor, and where this one stands among them.
#pragma once

#include "plan/geometry/group_ranks.h"
#include "shardway/mesh_tensor.h"

namespace shardway {

struct MeshTensor::Place {
  Group group;
  GroupRanks ranks;

  explicit Place(const Group& g) : group(g), ranks(g.global_ranks()) {}
  explicit Place(int64_t number) : group(Group::alone()), ranks({number}) {}

  int64_t number() const { return ranks.number_of(group.rank()); }
};

// The part of some rank in a process that is not that rank. It can be looked at but not moved.
[[gnu::visibility("default")]] MeshTensor detached_part(at::Tensor local, const Layout& layout, int64_t rank);

}  // namespace shardway
