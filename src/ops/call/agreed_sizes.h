// The first half of a call whose sizes are not known: the ranks compare what they bring, and every rank hears
// the sizes. Collective; throws what the whole call would.
#pragma once

#include <ATen/core/Tensor.h>

#include "shardway/collectives.h"

namespace shardway {

Sizes agreed_sizes(const at::Tensor& x, const AllGatherOptions& options);
Sizes agreed_sizes(const at::Tensor& x, const GatherOptions& options);
Sizes agreed_sizes(const at::Tensor& x, const GatherSizesOptions& options);

// What every rank sends here.
Sizes agreed_sizes(const at::Tensor& x, const Sizes& send_sizes, const AllToAllOptions& options);

// Every rank's part of what src has.
Sizes agreed_sizes(const at::Tensor& x, const ScatterOptions& options);

}  // namespace shardway
