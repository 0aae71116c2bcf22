// Runs of memory that the ranks of a host tell one another.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "transport/common/transport.h"

namespace shardway {

// Returns the runs of all ranks of the host, by place. Collective among them. Runs are 1-d and of one dtype,
// and every rank knows the lengths of all.
std::vector<at::Tensor> gathered(const at::Tensor& run, const std::vector<int64_t>& lengths,
                                 Transport& inside, const Subject& subject);

}  // namespace shardway
