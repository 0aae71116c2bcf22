// c10d's reduce ops as what src/shm and routes combine.
#pragma once

#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "c10d_calls/table.h"
#include "shardway/route.h"
#include "shm/kernels/reduce.h"

namespace shardway::backend {

// Fills in the op and the factor of `terms`. Throws c10::ValueError if the combination is not defined.
shm::Combine combine_of(const c10d::ReduceOp& op, at::ScalarType dtype, int64_t size, Terms& terms);

// Empty for an op that no route has.
std::optional<Op> op_of(const c10d::ReduceOp& op);

}  // namespace shardway::backend
