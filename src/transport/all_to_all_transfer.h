// A route run by one all-to-all of bytes.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace c10d {
class Backend;
}

namespace shardway {

// What goes to each peer is packed into one buffer and what comes is unpacked from one, except where the
// tensors already are those buffers. Every rank of the group must run its part of the route this way.
std::unique_ptr<Transfer> start_by_all_to_all(c10d::Backend& backend, const Route& route, const at::Tensor& x,
                                              const at::Tensor& out);

}  // namespace shardway
