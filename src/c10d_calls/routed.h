// The collectives of c10d as routes of a transport. Tensors are dense and on a device that the transport
// moves; the functions of call_terms.h have checked that they fit together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "c10d_calls/collectives.h"
#include "c10d_calls/memory.h"
#include "shardway/route.h"
#include "transport/common/transport.h"

namespace shardway::backend::routed {

// Empty for an op that is left to the engine. Throws c10::ValueError for a dtype that cannot be reduced.
std::optional<Op> op_of(const c10d::ReduceOp& op, const at::Tensor& t);

void all_reduce(Transport& transport, const at::Tensor& t, Op op);
void reduce(Transport& transport, const at::Tensor& t, Op op, int64_t root);
void broadcast(Transport& transport, const at::Tensor& t, int64_t root);
void all_gather(Transport& transport, const Tensors& outputs, const at::Tensor& input);
void all_gather_single(Transport& transport, const at::Tensor& output, const at::Tensor& input);
void gather(Transport& transport, const Tensors& outputs, const at::Tensor& input, int64_t root);
void scatter(Transport& transport, const at::Tensor& output, const Tensors& inputs, int64_t root);
void reduce_scatter(Transport& transport, const at::Tensor& output, const Tensors& inputs, Op op);
void reduce_scatter_single(Transport& transport, const at::Tensor& output, const at::Tensor& input, Op op);
void all_to_all(Transport& transport, const Tensors& outputs, const Tensors& inputs);
void all_to_all_single(Transport& transport, const at::Tensor& output, const at::Tensor& input,
                       const Counts& takes, const Counts& sends);

}  // namespace shardway::backend::routed
