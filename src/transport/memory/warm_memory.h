// Tensors in memory that was touched before: see shardway/memory.h.
#pragma once

#include <ATen/core/Tensor.h>

namespace shardway {

// As at::empty; plain memory when it is small or not on the CPU. It can be resized and shared like any other.
at::Tensor warm_empty(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace shardway
