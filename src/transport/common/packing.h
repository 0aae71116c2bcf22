// Packs boxes of a tensor into one run of memory and unpacks them: one pass on the tensor's device, and
// mostly one kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "shardway/route.h"

namespace shardway {

// The dim along which the boxes follow one another and make up a tensor of this shape, if they do.
//   rows [0,2) and [2,5) of a 5 x 4 tensor  →  dim 0
std::optional<int64_t> split_dim(const Moves& moves, const std::vector<int64_t>& shape);

// Whether the boxes, one after another, are the tensor's memory as it is.
bool lies_in_order(const at::Tensor& t, const Moves& moves);

int64_t volume_of(const Moves& moves);

// Returns the boxes one after another, each contiguous: 1-d.
at::Tensor packed(const at::Tensor& x, const Moves& moves);

// Returns the boxes in such a run, as views.
std::vector<at::Tensor> parts_of(const at::Tensor& run, const Moves& moves);

void unpack(const at::Tensor& run, const Moves& moves, const at::Tensor& out);

// out = the parts along dim, of any dtype.
void join_into(const at::Tensor& out, const std::vector<at::Tensor>& parts, int64_t dim);

}  // namespace shardway
