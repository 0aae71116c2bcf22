// Moves a tensor from one layout to another, differentiably.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "shardway/collectives.h"
#include "shardway/mesh_tensor.h"
#include "shardway/plan.h"

namespace [[gnu::visibility("default")]] shardway {

struct RedistributeOptions {
  std::optional<Mesh> mesh = std::nullopt;  // of the result; left out: the input's
  ShardOrder order = {};
  std::optional<Topology> topology = std::nullopt;
  std::optional<int64_t> max_bytes = std::nullopt;
  std::shared_ptr<const Plan> plan = nullptr;  // instead of the cheapest; then neither of the two above
  std::optional<std::vector<Placement>> grad_placements = std::nullopt;
};

// The same tensor in another layout: collective over the tensor's group, those of its ranks outside both
// meshes included. Runs the cheapest plan, or the given one. The ranks compare layouts and plan before the
// first step: a disagreement, or one rank's bad argument, is the same c10::ValueError on all, and the group
// stays usable.
//
// The result shares no memory with the input, except where nothing changes: in an unchanged layout (unless
// grad_placements are given), and without a group or with one rank.
//
// Never needs more memory than the input, the output of a step, that step's own input, and in shared memory
// one chunk, elsewhere what is packed for the messages.
//
// Gradient: redistribute is the identity on the global tensor, and so is its gradient. The gradient of the
// result has the result's placements with Replicate for Partial, or `grad_placements`; it is redistributed to
// the input's placements with Replicate for Partial, and divided by the ranks of an average that was
// combined. min, max and product have none. Backward is a collective that every rank of the group runs.
MeshTensor redistribute(const MeshTensor& tensor, const std::vector<Placement>& placements,
                        const RedistributeOptions& options = {});
MeshTensor redistribute(const MeshTensor& tensor, const Layout& to, const RedistributeOptions& options = {});

// Computation can go on meanwhile, whatever the layouts; an error comes with wait().
Async<MeshTensor> redistribute_async(const MeshTensor& tensor, const std::vector<Placement>& placements,
                                     const RedistributeOptions& options = {});
Async<MeshTensor> redistribute_async(const MeshTensor& tensor, const Layout& to,
                                     const RedistributeOptions& options = {});

struct RedistributeListOptions {
  std::optional<Topology> topology = std::nullopt;
  std::optional<int64_t> max_bytes = std::nullopt;
};

// Many tensors of one group at once, each to its own target; values as one by one. In shared memory a step of
// all of them is one call; elsewhere small ones share a message per pair of ranks. The gradients move
// together too: an input whose result was not used gets zeros.
std::vector<MeshTensor> redistribute(const std::vector<MeshTensor>& tensors, const std::vector<Layout>& to,
                                     const RedistributeListOptions& options = {});
Async<std::vector<MeshTensor>> redistribute_async(const std::vector<MeshTensor>& tensors,
                                                  const std::vector<Layout>& to,
                                                  const RedistributeListOptions& options = {});

struct DistributeOptions {
  std::optional<int64_t> src = std::nullopt;  // the global rank that has the tensor; left out: every rank has
  Group group = {};
};

// Puts a whole tensor on a mesh: collective over the group. With `src`, what the other ranks pass is not
// read, and may be undefined: src sends shape, dtype and to each rank its box. Without, every rank of the
// mesh has the same tensor and copies its box out of it.
MeshTensor distribute(const at::Tensor& tensor, const Mesh& mesh, const std::vector<Placement>& placements,
                      const DistributeOptions& options = {});

}  // namespace shardway
