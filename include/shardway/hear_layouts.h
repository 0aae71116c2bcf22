// For a rank that takes part in a redistribution, has no part of a tensor, and does not know how it lies.
#pragma once

#include <optional>
#include <vector>

#include "shardway/group.h"
#include "shardway/layout.h"

namespace [[gnu::visibility("default")]] shardway {

// How the tensors lie that the other ranks of a group are about to redistribute.
struct HeardLayouts {
  std::vector<Layout> layouts = {};
  bool is_list = false;  // they redistribute a list; otherwise there is one layout
};

// Asks the ranks that call redistribute how their tensors lie. Collective with their redistribute. The caller
// then makes a MeshTensor without a local tensor from each layout, and calls redistribute as they do:
//
//   const Layout layout = hear_layouts({}, world).layouts[0];
//   redistribute(MeshTensor({}, layout, world), {shard(0)}, {.mesh = mesh});
//
// `known` has the layouts that this rank knows, an entry per tensor of its list. It is empty if the rank
// knows not even how many tensors there are. Throws the same c10::ValueError on every rank if no rank knows a
// layout, if two know different ones, or if a rank asks that has a part of the tensor.
HeardLayouts hear_layouts(const std::vector<std::optional<Layout>>& known, const Group& group);

}  // namespace shardway
