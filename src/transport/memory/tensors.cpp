#include "transport/memory/tensors.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

namespace shardway {

at::Tensor empty_tensor(at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::empty(shape, options);
}

at::Tensor empty_tensor_like(const at::Tensor& t) { return at::empty_like(t); }

at::Tensor zero_tensor(at::IntArrayRef shape, const at::TensorOptions& options) {
  return at::zeros(shape, options);
}

at::Tensor concatenated(at::TensorList tensors, int64_t dim) { return at::cat(tensors, dim); }

at::Tensor padded(const at::Tensor& t, at::IntArrayRef lengths) { return at::constant_pad_nd(t, lengths); }

}  // namespace shardway
