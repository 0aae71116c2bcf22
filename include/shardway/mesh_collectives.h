// The collectives and tensor functions of PyTorch's DTensor collective utilities, by their names.
//
// The collectives run along one dim of a mesh: each row of ranks that differ in that dim alone has its own.
// The group has all ranks of the mesh, and all its ranks call. They compare what they bring: where two ranks
// of a row do not fit together, or one rank has bad arguments, it is the same c10::ValueError on every rank,
// and the group stays usable.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <vector>

#include "shardway/collectives.h"
#include "shardway/layout.h"

namespace c10d {
class Work;
}

namespace shardway {
namespace [[gnu::visibility("default")]] collective_utils {

// What lies in parts along `gather_dim`, of any size per rank, in parts along `shard_dim` instead, as
// torch.chunk cuts: a rank sends each of the others the piece that they have in common, and nothing else. A
// rank outside the mesh passes an undefined tensor and gets one. A meta tensor gives a meta tensor, as if all
// ranks had its size, and communicates nothing. Adjoint: the same pieces the other way.
at::Tensor shard_dim_alltoall(const at::Tensor& input, int64_t gather_dim, int64_t shard_dim,
                              const Mesh& mesh, int64_t mesh_dim, const Group& group = {});
Async<at::Tensor> shard_dim_alltoall_async(const at::Tensor& input, int64_t gather_dim, int64_t shard_dim,
                                           const Mesh& mesh, int64_t mesh_dim, const Group& group = {});

struct MeshOptions {
  int64_t mesh_dim = 0;
  bool async_op = false;
  int64_t group_src = 0;  // the source, by its place along the mesh dim
  Group group = {};
};

// Fills every rank's `output` with its tensor of the source's list, which has one per rank of the row; the
// other ranks' lists are not read. Sizes may differ between the ranks. Gives a Work when async, else nothing.
// Does nothing with meta tensors. Not differentiable.
c10::intrusive_ptr<c10d::Work> mesh_scatter(const at::Tensor& output,
                                            const std::vector<at::Tensor>& scatter_list, const Mesh& mesh,
                                            const MeshOptions& options = {});

// Fills every rank's `tensor` with the source's. Otherwise as mesh_scatter.
c10::intrusive_ptr<c10d::Work> mesh_broadcast(const at::Tensor& tensor, const Mesh& mesh,
                                              const MeshOptions& options = {});

// With `pad_size` zeros behind `pad_dim`; the tensor itself where there are none. Local.
at::Tensor pad_tensor(const at::Tensor& tensor, int64_t pad_dim, int64_t pad_size);

// Without the last `pad_size` of `pad_dim`, as a view; the tensor itself where there are none. Local.
at::Tensor unpad_tensor(const at::Tensor& tensor, int64_t pad_dim, int64_t pad_size);

// The shards and behind them `num_empty_tensors` like the first, of length zero along `shard_dim`. Local.
std::vector<at::Tensor> fill_empty_tensor_to_shards(std::vector<at::Tensor> shards, int64_t shard_dim,
                                                    int64_t num_empty_tensors);

}  // namespace collective_utils
}  // namespace shardway
