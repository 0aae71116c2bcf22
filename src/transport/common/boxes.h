// Boxes of a tensor as views and as bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include "shardway/route.h"

namespace shardway {

// The elements of `t` in `box`, as a view.
at::Tensor view_of(const at::Tensor& t, const Box& box);

// The memory of a contiguous tensor as 1-d bytes, which keep the tensor alive.
at::Tensor bytes_of(const at::Tensor& t);

}  // namespace shardway
