// Topologies that know the hosts of a group.
#pragma once

#include <optional>

#include "shardway/mesh_tensor.h"
#include "shardway/topology.h"

namespace shardway {

// The topology by which the plans of a tensor are priced: the given one. If none is given and the tensor's
// group moves it in two levels, default_topology() with the hosts of the group. Otherwise nothing.
std::optional<Topology> topology_for(const MeshTensor& tensor, const std::optional<Topology>& given);

}  // namespace shardway
