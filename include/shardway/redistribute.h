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
  std::optional<Mesh> mesh = std::nullopt;  // of the result; by default the input's
  ShardOrder order = {};
  std::optional<Topology> topology = std::nullopt;
  std::optional<int64_t> max_bytes = std::nullopt;
  std::shared_ptr<const Plan> plan = nullptr;  // run instead of the cheapest; excludes topology and max_bytes
  std::optional<std::vector<Placement>> grad_placements = std::nullopt;
  std::optional<Group> group = std::nullopt;      // of the living ranks, if some of the tensor's have died
  std::vector<MeshTensor> copies = {};            // with group: the same tensor in other layouts
  std::optional<Relabel> relabel = std::nullopt;  // of the result's mesh; excludes plan and group
};

// Returns the same tensor in another layout. Collective over the tensor's group, including its ranks outside
// both meshes. Runs the cheapest plan, or the given one. The ranks compare layouts and plan before the first
// step: if they disagree, or if one rank has a bad argument, all throw the same c10::ValueError, and the
// group stays usable. If nothing is communicated, or if every rank has a tensor on a device, they compare
// only where that costs next to nothing or SHARDWAY_CHECK=1 asks for it.
//
// The result shares no memory with the input, except where nothing changes: in an unchanged layout (unless
// grad_placements are given), and without a group or with one rank.
//
// With `relabel` the result lies as asked, on ranks that are chosen so that fewer bytes move: its layout says
// on which. Ranks outside its mesh hold no part of it.
//
// Needs no more memory than the input, the input and output of one step, and a buffer: one chunk in shared
// memory, elsewhere what is packed for the messages.
//
// Gradient: redistribute is the identity on the global tensor, and so is its gradient. The gradient of the
// result has the result's placements with Replicate for Partial, or `grad_placements`. It is redistributed to
// the input's placements with Replicate for Partial and, if an average was combined, divided by the number of
// its ranks. min, max and product have no gradient. Backward is a collective that every rank of the group
// runs.
//
// If ranks have died, `group` is that of the living, which know one another by the same global numbers. It
// moves the tensor, and the result is in it. Each part comes from a living rank that holds it: a replica, or
// a rank that has it in one of `copies`, which all hold the same global tensor. A mesh whose ranks are turned
// by one makes the copy of a shard that the next rank keeps. If no living rank holds some part, every rank
// throws the same c10::ValueError, which names the lost boxes and who had them. By default the result is on a
// mesh of the living ranks, if the tensor's mesh has one dim. The result has no gradient; plan, topology,
// max_bytes and grad_placements cannot be given.
MeshTensor redistribute(const MeshTensor& tensor, const std::vector<Placement>& placements,
                        const RedistributeOptions& options = {});
MeshTensor redistribute(const MeshTensor& tensor, const Layout& to, const RedistributeOptions& options = {});

// Returns the plan that redistribute would run for this tensor: without a given topology, on a group whose
// ranks are on several hosts, it is priced in two levels with the group's hosts. Local, unless it comes
// before the group's first call: then it is collective, since the ranks find out which of them share a host.
// Throws c10::ValueError if there is no plan, and says why.
std::shared_ptr<const Plan> plan(const MeshTensor& tensor, const Layout& to, const PlanOptions& options = {});

// Starts a redistribution; the caller can compute meanwhile, whatever the layouts. For CPU tensors in a group
// of several ranks wait() throws the errors, otherwise the call itself does.
Async<MeshTensor> redistribute_async(const MeshTensor& tensor, const std::vector<Placement>& placements,
                                     const RedistributeOptions& options = {});
Async<MeshTensor> redistribute_async(const MeshTensor& tensor, const Layout& to,
                                     const RedistributeOptions& options = {});

struct RedistributeListOptions {
  std::optional<Topology> topology = std::nullopt;
  std::optional<int64_t> max_bytes = std::nullopt;
  std::optional<Group> group = std::nullopt;         // as in RedistributeOptions
  std::vector<std::vector<MeshTensor>> copies = {};  // with group: those of each tensor; or empty
  // This rank's parts of the results, in the caller's memory; undefined entries, or no entries, for results
  // in memory of their own. Any views, which share memory neither with one another nor with the tensors.
  std::vector<at::Tensor> outs = {};
  std::optional<Relabel> relabel = std::nullopt;  // of all results together; excludes group
};

// Redistributes many tensors of one group at once, each to its own target. The values are the same as one by
// one. In shared memory, one call runs a step of all tensors; elsewhere small tensors share a message per
// pair of ranks. The gradients move together too: an input whose result was not used gets zeros.
std::vector<MeshTensor> redistribute(const std::vector<MeshTensor>& tensors, const std::vector<Layout>& to,
                                     const RedistributeListOptions& options = {});
Async<std::vector<MeshTensor>> redistribute_async(const std::vector<MeshTensor>& tensors,
                                                  const std::vector<Layout>& to,
                                                  const RedistributeListOptions& options = {});

// How the tensors lie that the other ranks of a group are about to redistribute.
struct HeardLayouts {
  std::vector<Layout> layouts = {};
  bool is_list = false;  // they redistribute a list; otherwise there is one layout
};

// For a rank that takes part in a redistribution, has no part of a tensor, and does not know how it lies.
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

struct DistributeOptions {
  std::optional<int64_t> src = std::nullopt;  // the global rank that has the tensor; by default all have it
  Group group = {};
};

// Puts a whole tensor on a mesh. Collective over the group. With `src`, the tensors of the other ranks are
// not read and may be undefined: src sends shape and dtype to all ranks, and to each rank its box. Without
// `src`, every rank of the mesh has the same tensor and copies its box out of it.
MeshTensor distribute(const at::Tensor& tensor, const Mesh& mesh, const std::vector<Placement>& placements,
                      const DistributeOptions& options = {});

}  // namespace shardway
