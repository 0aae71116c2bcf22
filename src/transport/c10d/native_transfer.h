// A route run by the collectives of a device's own engine (NCCL and its like).
#pragma once

#include <memory>

#include "transport/common/transport.h"

namespace c10d {
class Backend;
}

namespace shardway {

// Whether the engine's own collective does what the route does. A gather is its all-gather (flat if the sizes
// are equal) and a reduce-scatter its reduce-scatter, along any dim; an all-reduce and a broadcast are its
// own. It does not reduce if torch asks for deterministic algorithms. The answer depends on the route and the
// dtype, not on how a tensor lies in memory, because all ranks must come to the same answer.
bool runs_natively(const Route& route, const at::Tensor& x);

// Starts the route by that collective; dims other than the outermost take one more pass, which packs or
// unpacks. Every other route is one all-to-all of packed bytes. Nothing here waits for the device.
std::unique_ptr<Transfer> start_natively(c10d::Backend& backend, const Route& route, const at::Tensor& x,
                                         const at::Tensor& out);

}  // namespace shardway
