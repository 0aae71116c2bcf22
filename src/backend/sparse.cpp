// The sum of sparse tensors: the elements of all ranks one behind the other, those at one place added up.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "backend/collectives.h"
#include "backend/memory.h"
#include "shm/calls/header.h"

namespace shardway::backend {
namespace {

constexpr size_t kMostDims = 12;

// What the ranks must know of one another's tensors.
struct Form {
  int64_t elements = 0;
  int64_t sparse_dims = 0;
  int64_t dims = 0;
  std::array<int64_t, kMostDims> sizes = {};
};

Form form_of(const at::Tensor& t) {
  Form form{.elements = t._nnz(), .sparse_dims = t.sparse_dim(), .dims = t.dim()};
  std::copy(t.sizes().begin(), t.sizes().end(), form.sizes.begin());
  return form;
}

Form form_at(const Heard& heard, int64_t rank) {
  Form form;
  std::memcpy(&form, heard.words(rank, sizeof(Form)), sizeof(Form));
  const bool has_dims = form.dims >= 0 && form.dims <= static_cast<int64_t>(kMostDims) &&
                        form.sparse_dims >= 0 && form.sparse_dims <= form.dims;
  if (!has_dims || form.elements < 0 || form.elements > kMostElements)
    throw shm::BadHeader("rank " + std::to_string(rank) + " has a sparse tensor that cannot be");
  return form;
}

at::IntArrayRef sizes_of(const Form& form) { return {form.sizes.data(), static_cast<size_t>(form.dims)}; }

void check_forms(const std::vector<Form>& forms) {
  for (size_t rank = 1; rank < forms.size(); ++rank) {
    TORCH_CHECK_VALUE(sizes_of(forms[rank]) == sizes_of(forms[0]),
                      "sparse_all_reduce: ranks disagree on the shape: ", sizes_of(forms[0]), " on rank 0, ",
                      sizes_of(forms[rank]), " on rank ", rank);
    TORCH_CHECK_VALUE(forms[rank].sparse_dims == forms[0].sparse_dims,
                      "sparse_all_reduce: ranks disagree on the sparse dims: ", forms[0].sparse_dims,
                      " on rank 0, ", forms[rank].sparse_dims, " on rank ", rank);
  }
}

}  // namespace

void Collectives::sparse_all_reduce(const at::Tensor& t, const c10d::ReduceOp& op) {
  at::Tensor x;
  Form mine;
  const Heard heard = table_.run(group_, CallKind::sparse_all_reduce, [&] {
    TORCH_CHECK_VALUE(t.is_sparse() && t.is_cpu(), "a tensor is ", t.layout(), " on ", t.device(),
                      ", but COO tensors of the CPU are added up");
    TORCH_CHECK_VALUE(op.op_ == c10d::ReduceOp::SUM, "sparse tensors can only be added up");
    TORCH_CHECK_VALUE(t.dim() <= static_cast<int64_t>(kMostDims), "a sparse tensor has ", t.dim(),
                      " dims, more than ", kMostDims);
    x = t.coalesce();
    mine = form_of(x);
    return Prepared{{.dtype = t.scalar_type(), .op = op.op_, .words = std::as_bytes(std::span(&mine, 1))}};
  });
  std::vector<Form> forms;
  for (int64_t rank = 0; rank < size(); ++rank) forms.push_back(form_at(heard, rank));
  check_forms(forms);
  const at::Tensor values = x.values().contiguous();
  Tensors all_indices;
  Tensors all_values;
  for (const Form& form : forms) {
    std::vector<int64_t> shape = values.sizes().vec();
    shape[0] = form.elements;
    all_indices.push_back(at::empty({form.sparse_dims, form.elements}, at::kLong));
    all_values.push_back(at::empty(shape, values.scalar_type()));
  }
  all_gather(all_indices, x.indices().contiguous());
  all_gather(all_values, values);
  t.copy_(at::sparse_coo_tensor(at::cat(all_indices, 1), at::cat(all_values, 0), t.sizes()).coalesce());
}

}  // namespace shardway::backend
