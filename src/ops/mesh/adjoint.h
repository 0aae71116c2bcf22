// The gradient of redistribute: the gradient, redistributed.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "ops/mesh/prepared_plan.h"

namespace shardway {

// The same boxes, with Replicate for Partial.
Layout without_addends(const Layout& layout);

struct AdjointOptions {
  Layout gradient;  // how the gradient of the result lies
  std::shared_ptr<const MeshTensor::Place> place;
  std::optional<Topology> topology = std::nullopt;
  std::optional<int64_t> max_bytes = std::nullopt;
  uint64_t number = 0;  // of the call that the gradient belongs to; see Forward
};

// The plan by which a gradient goes back, and its divisor.
struct Adjoint {
  std::shared_ptr<const PreparedPlan> prepared;
  int64_t divisor = 1;
  AdjointOptions options;
};

// Throws the same c10::ValueError on every rank if no plan leads back.
std::shared_ptr<const Adjoint> adjoint_of(const PreparedPlan& prepared, const AdjointOptions& options,
                                          int64_t divisor = 1);

// Returns `out`, which the plan made from `x`, with a gradient, even if this rank's x needs none, since
// backward is a collective that every rank runs.
at::Tensor with_adjoint(const at::Tensor& x, const at::Tensor& out,
                        const std::shared_ptr<const Adjoint>& adjoint);

// The same for the results of a list, whose gradients travel as a list.
using Adjoints = std::vector<std::shared_ptr<const Adjoint>>;
std::vector<at::Tensor> with_adjoints(std::vector<at::Tensor> xs, std::vector<at::Tensor> outs,
                                      const Adjoints& adjoints);

}  // namespace shardway
