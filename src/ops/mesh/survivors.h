// Redistribution of tensors whose group has lost ranks: to layouts of the living.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "shardway/redistribute.h"

namespace shardway {

inline constexpr const char* kRelabelNeedsAllRanks = "relabel is for a tensor whose ranks all live";
inline constexpr const char* kCopiesNeedAGroup =
    "copies are for a tensor that has lost ranks: pass group= of the living too";

// Tensors, and per tensor copies of it in other layouts. Without any copy `copies` may be empty.
struct HeldTensors {
  std::vector<MeshTensor> tensors = {};
  std::vector<std::vector<MeshTensor>> copies = {};
};

// See RedistributeOptions::group, which is given. Collective over that group.
std::vector<MeshTensor> redistribute_to_living(const HeldTensors& held,
                                               const std::function<std::vector<Layout>()>& targets,
                                               const RedistributeListOptions& options);

// The mesh of a result for which none is given: the same or, if it has one dim, its ranks that are in the
// group. Throws BadArgument if another mesh has lost ranks.
[[gnu::visibility("default")]] Mesh mesh_of_living(const Mesh& mesh, const std::optional<Group>& group);

}  // namespace shardway
