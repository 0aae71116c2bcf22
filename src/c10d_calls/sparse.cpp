// The sum of sparse tensors: the elements of all ranks are gathered one after another, and those at the same
// place are added up.
#include <ATen/ATen.h>

#include <vector>

#include "c10d_calls/memory.h"
#include "c10d_calls/memory_collectives.h"

namespace shardway::backend {

void MemoryCollectives::sparse_all_reduce(const at::Tensor& t, const c10d::ReduceOp& op) {
  at::Tensor x;
  const wire::BlockRows heard = table_.run(group_, Collective::dist_sparse_all_reduce, [&] {
    TORCH_CHECK_VALUE(t.is_sparse() && t.is_cpu(), "a tensor is ", t.layout(), " on ", t.device(),
                      ", but COO tensors of the CPU are added up");
    TORCH_CHECK_VALUE(op.op_ == c10d::ReduceOp::SUM, "sparse tensors can only be added up");
    TORCH_CHECK_VALUE(t.dim() <= wire::kMaxDims, "a sparse tensor has ", t.dim(), " dims, more than ",
                      wire::kMaxDims);
    x = t.coalesce();
    const Counts elements{.each = x._nnz()};
    return Prepared{{.dtype = t.scalar_type(),
                     .sends = elements,
                     .takes = elements,
                     .shape = t.sizes().vec(),
                     .sparse_dims = x.sparse_dim()}};
  });
  std::vector<int64_t> elements;  // by rank; copied, as the next call overwrites what was heard
  for (int64_t rank = 0; rank < size(); ++rank) elements.push_back(heard[rank].header().in_size);
  const at::Tensor values = x.values().contiguous();
  Tensors all_indices;
  Tensors all_values;
  for (const int64_t count : elements) {
    std::vector<int64_t> shape = values.sizes().vec();
    shape[0] = count;
    all_indices.push_back(at::empty({x.sparse_dim(), count}, at::kLong));
    all_values.push_back(at::empty(shape, values.scalar_type()));
  }
  all_gather(all_indices, x.indices().contiguous());
  all_gather(all_values, values);
  t.copy_(at::sparse_coo_tensor(at::cat(all_indices, 1), at::cat(all_values, 0), t.sizes()).coalesce());
}

}  // namespace shardway::backend
