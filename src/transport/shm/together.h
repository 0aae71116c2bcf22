// Several routes in one exchange: what they send to a rank goes as one run of bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "transport/common/transport.h"

namespace shardway {

// Collective: every rank brings its parts of the same routes, in the same order. The tensors are on the CPU;
// each has its own dtype. Two copies more than a transfer of its own, against its meeting or its messages.
void run_together(Transport& transport, std::span<const RouteCall> calls, const Subject& subject);

}  // namespace shardway
