// The collectives of c10d. Each call agrees on its terms first; after that only a lost peer can make it fail.
// Inputs do not change, and a call that the ranks refuse writes nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace shardway::backend {

using Tensors = std::vector<at::Tensor>;

// One rank's calls, one at a time.
class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual void barrier() = 0;
  virtual void all_reduce(const at::Tensor& t, const c10d::ReduceOp& op) = 0;
  virtual void all_reduce_together(const Tensors& list, const c10d::ReduceOp& op) = 0;
  virtual void sparse_all_reduce(const at::Tensor& t, const c10d::ReduceOp& op) = 0;
  virtual void broadcast(const at::Tensor& t, int64_t root) = 0;
  virtual void reduce(const at::Tensor& t, const c10d::ReduceOp& op, int64_t root) = 0;
  virtual void all_gather(const Tensors& outputs, const at::Tensor& input) = 0;
  virtual void all_gather_single(const at::Tensor& output, const at::Tensor& input) = 0;
  virtual void gather(const Tensors& outputs, const at::Tensor& input, int64_t root) = 0;
  virtual void scatter(const at::Tensor& output, const Tensors& inputs, int64_t root) = 0;
  virtual void reduce_scatter(const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op) = 0;
  virtual void reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                     const c10d::ReduceOp& op) = 0;
  virtual void all_to_all(const Tensors& outputs, const Tensors& inputs) = 0;
  virtual void all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                 const std::vector<int64_t>& output_splits,
                                 const std::vector<int64_t>& input_splits) = 0;
};

}  // namespace shardway::backend
