// Tensors in memory that was touched before: see shardway/memory.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace shardway {

// Like at::empty; plain memory if the tensor is small or not on the CPU. It can be resized and shared like
// any other.
at::Tensor warm_empty(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace shardway
