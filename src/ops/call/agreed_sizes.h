// The first half of a call whose sizes are not known: the ranks compare their arguments, and every rank hears
// the sizes. Collective. Throws what the whole call would throw.
#pragma once

#include <ATen/core/Tensor.h>

#include "shardway/collectives.h"

namespace shardway {

Sizes agreed_sizes(const at::Tensor& x, const AllGatherOptions& options);
Sizes agreed_sizes(const at::Tensor& x, const GatherOptions& options);
Sizes agreed_sizes(const at::Tensor& x, const GatherSizesOptions& options);

// The sizes that every rank sends here.
Sizes agreed_sizes(const at::Tensor& x, const Sizes& send_sizes, const AllToAllOptions& options);

// The size of every rank's part of src's tensor.
Sizes agreed_sizes(const at::Tensor& x, const ScatterOptions& options);

}  // namespace shardway
