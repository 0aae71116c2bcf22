// A route run by the collectives of a device's own engine (NCCL and its like).
#pragma once

#include <memory>

#include "transport/common/transport.h"

namespace c10d {
class Backend;
}

namespace shardway {

// Whether the engine's own collective does what the route does: a gather is its all-gather (flat when the
// sizes are equal), a reduce-scatter its reduce-scatter, along any dim; an all-reduce and a broadcast are its
// own. It reduces unless torch asks for deterministic algorithms. Only shapes are asked, not how a tensor
// lies in memory: all ranks must come to the same answer.
bool runs_natively(const Route& route, const at::Tensor& x);

// By that collective, along dims other than the outermost with one pass that packs or unpacks. Every other
// route is one all-to-all of packed bytes. Nothing here waits for the device.
std::unique_ptr<Transfer> start_natively(c10d::Backend& backend, const Route& route, const at::Tensor& x,
                                         const at::Tensor& out);

}  // namespace shardway
