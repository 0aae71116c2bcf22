// The collectives as operators of torch's dispatcher, for tracers: torch.ops.shardway in Python.
//
// A group is passed by name, a root as a rank of the group, and every operator returns one new tensor. A
// collective whose sizes are not known takes two operators: `…_sizes`, which returns the sizes as an int64
// tensor, and the collective itself with these sizes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>

namespace shardway::operators {

using SymSizes = c10::SymIntArrayRef;
using OptionalSymSizes = at::OptionalSymIntArrayRef;

using AllGatherV = at::Tensor(const at::Tensor& x, SymSizes sizes, int64_t dim, std::string_view grad,
                              std::string_view group);
using ReduceScatterV = at::Tensor(const at::Tensor& x, OptionalSymSizes sizes, int64_t dim,
                                  std::string_view op, std::string_view group);
using AllToAllV = at::Tensor(const at::Tensor& x, SymSizes send_sizes, SymSizes recv_sizes, int64_t dim,
                             std::string_view group);
using AllReduceOperator = at::Tensor(const at::Tensor& x, std::string_view op, std::string_view grad,
                                     std::string_view group);
using Broadcast = at::Tensor(const at::Tensor& x, int64_t src, std::string_view group);
using GatherV = at::Tensor(const at::Tensor& x, SymSizes sizes, int64_t dst, int64_t dim,
                           std::string_view group);
using ScatterV = at::Tensor(const at::Tensor& x, SymSizes sizes, int64_t src, int64_t dim,
                            std::string_view group);

// Finds an operator by its name, such as "shardway::all_gather_v".
template <class Signature>
c10::TypedOperatorHandle<Signature> found(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace shardway::operators
