// The functions of ATen that make tensors. ATen's own headers of them instantiate templates in every file
// that includes them, which takes longer than the file itself: docs/decisions/0023-build.md.
#pragma once

#include <ATen/core/Tensor.h>

namespace shardway {

at::Tensor empty_tensor(at::IntArrayRef shape, const at::TensorOptions& options = {});
at::Tensor empty_tensor_like(const at::Tensor& t);
at::Tensor zero_tensor(at::IntArrayRef shape, const at::TensorOptions& options = {});
at::Tensor concatenated(at::TensorList tensors, int64_t dim = 0);
// Zeros around a tensor: two lengths per dim, before and after, the last dim first.
at::Tensor padded(const at::Tensor& t, at::IntArrayRef lengths);

}  // namespace shardway
