// Boxes of a tensor as views and as bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "shardway/route.h"

namespace shardway {

// The elements of `t` in `box`, as a view.
at::Tensor view_of(const at::Tensor& t, const Box& box);

// Whether the box is one run of memory in a contiguous tensor of this shape.
bool is_one_run(const Box& box, const std::vector<int64_t>& shape);

// The memory of a contiguous tensor as 1-d bytes, which keep the tensor alive.
at::Tensor bytes_of(const at::Tensor& t);

}  // namespace shardway
