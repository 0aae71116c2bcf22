// The collectives and tensor functions of PyTorch's DTensor collective utilities, by their names.
//
// The collectives run along one dim of a mesh: each row of ranks that differ only in that dim has its own.
// The group contains all ranks of the mesh, and all ranks of the group call. They compare their arguments: if
// two ranks of a row do not fit together, or one rank has bad arguments, every rank throws the same
// c10::ValueError, and the group stays usable.
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

// Takes a tensor that is split along `gather_dim`, in parts of any size per rank, and splits it along
// `shard_dim` instead, as torch.chunk does. A rank sends each other rank only the piece that the old part of
// the one and the new part of the other have in common. A rank outside the mesh passes and gets an undefined
// tensor. For a meta tensor, returns a meta tensor as if all ranks had its size, and communicates nothing.
// Adjoint: the same pieces move the other way.
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

// Fills every rank's `output` with its tensor from the source's list, which has one per rank of the row; the
// other ranks' lists are not read. Sizes may differ between the ranks. Returns a Work if `async_op`, else
// nothing. Does nothing with meta tensors. Not differentiable.
c10::intrusive_ptr<c10d::Work> mesh_scatter(const at::Tensor& output,
                                            const std::vector<at::Tensor>& scatter_list, const Mesh& mesh,
                                            const MeshOptions& options = {});

// Fills every rank's `tensor` with the source's. Otherwise as mesh_scatter.
c10::intrusive_ptr<c10d::Work> mesh_broadcast(const at::Tensor& tensor, const Mesh& mesh,
                                              const MeshOptions& options = {});

// Returns the tensor with `pad_size` zeros appended along `pad_dim`; the tensor itself if `pad_size` is 0.
// Local.
at::Tensor pad_tensor(const at::Tensor& tensor, int64_t pad_dim, int64_t pad_size);

// Returns a view of the tensor without its last `pad_size` entries along `pad_dim`; the tensor itself if
// `pad_size` is 0. Local.
at::Tensor unpad_tensor(const at::Tensor& tensor, int64_t pad_dim, int64_t pad_size);

// Returns the shards, followed by `num_empty_tensors` tensors like the first one but of length zero along
// `shard_dim`. Local.
std::vector<at::Tensor> fill_empty_tensor_to_shards(std::vector<at::Tensor> shards, int64_t shard_dim,
                                                    int64_t num_empty_tensors);

}  // namespace collective_utils
}  // namespace shardway
