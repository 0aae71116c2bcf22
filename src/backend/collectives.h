// The collectives of c10d on a group that shares memory. Each call agrees on its terms first; after that only
// a lost peer can make it fail. Inputs do not change, and a call that the ranks refuse writes nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "backend/table.h"
#include "shm/group/group.h"

namespace shardway::backend {

using Tensors = std::vector<at::Tensor>;

// One rank's calls, one at a time.
class Collectives {
 public:
  Collectives(shm::SharedGroup& group, Table& table) : group_(group), table_(table) {}

  void barrier();
  void all_reduce(const at::Tensor& t, const c10d::ReduceOp& op);
  void all_reduce_together(const Tensors& list, const c10d::ReduceOp& op);
  void sparse_all_reduce(const at::Tensor& t, const c10d::ReduceOp& op);
  void broadcast(const at::Tensor& t, int64_t root);
  void reduce(const at::Tensor& t, const c10d::ReduceOp& op, int64_t root);
  void all_gather(const Tensors& outputs, const at::Tensor& input);
  void all_gather_single(const at::Tensor& output, const at::Tensor& input);
  void gather(const Tensors& outputs, const at::Tensor& input, int64_t root);
  void scatter(const at::Tensor& output, const Tensors& inputs, int64_t root);
  void reduce_scatter(const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op);
  void reduce_scatter_single(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op);
  void all_to_all(const Tensors& outputs, const Tensors& inputs);
  void all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                         const std::vector<int64_t>& output_splits, const std::vector<int64_t>& input_splits);

 private:
  int64_t rank() const { return group_.rank(); }
  int64_t size() const { return group_.size(); }
  void check_root(int64_t root) const;

  shm::SharedGroup& group_;
  Table& table_;
};

}  // namespace shardway::backend
