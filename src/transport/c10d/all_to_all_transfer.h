// A route run by one all-to-all of bytes.
#pragma once

#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "transport/common/transport.h"

namespace shardway {

// An engine's all-to-all of bytes, with the bytes from and to each rank.
using AllToAll = std::function<c10::intrusive_ptr<c10d::Work>(at::Tensor& received, at::Tensor& sent,
                                                              std::vector<int64_t>& received_bytes,
                                                              std::vector<int64_t>& sent_bytes)>;

// What goes to the peers is packed into one buffer, and what comes from them is unpacked from one, unless the
// tensors already are those buffers. Every rank of the group must run its part of the route this way.
std::unique_ptr<Transfer> start_by_all_to_all(const AllToAll& all_to_all, const Route& route,
                                              const at::Tensor& x, const at::Tensor& out);

}  // namespace shardway
