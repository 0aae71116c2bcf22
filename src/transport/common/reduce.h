// Combines addends in one pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "shardway/route.h"

namespace shardway {

// out = op over the addends, in their order, divided by `divisor`. f16 and bf16 accumulate in f32 and are
// rounded once, after the division. All tensors have one shape, dtype and device. The bits of the result
// depend on nothing else.
void reduce_into(const at::Tensor& out, const std::vector<at::Tensor>& addends, Op op, int64_t divisor);

}  // namespace shardway
