// The collectives of c10d on CPU tensors of ranks that share memory.
#pragma once

#include "c10d_calls/call_terms.h"
#include "c10d_calls/collectives.h"
#include "c10d_calls/table.h"
#include "shm/group/group.h"

namespace shardway::backend {

// Every call is one meeting.
class MemoryCollectives : public Collectives {
 public:
  MemoryCollectives(shm::SharedGroup& group, Table& table) : group_(group), table_(table) {}

  void barrier() override;
  void all_reduce(const at::Tensor& t, const c10d::ReduceOp& op) override;
  void all_reduce_together(const Tensors& list, const c10d::ReduceOp& op) override;
  void sparse_all_reduce(const at::Tensor& t, const c10d::ReduceOp& op) override;
  void broadcast(const at::Tensor& t, int64_t root) override;
  void reduce(const at::Tensor& t, const c10d::ReduceOp& op, int64_t root) override;
  void all_gather(const Tensors& outputs, const at::Tensor& input) override;
  void all_gather_single(const at::Tensor& output, const at::Tensor& input) override;
  void gather(const Tensors& outputs, const at::Tensor& input, int64_t root) override;
  void scatter(const at::Tensor& output, const Tensors& inputs, int64_t root) override;
  void reduce_scatter(const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op) override;
  void reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                             const c10d::ReduceOp& op) override;
  void all_to_all(const Tensors& outputs, const Tensors& inputs) override;
  void all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                         const std::vector<int64_t>& output_splits,
                         const std::vector<int64_t>& input_splits) override;

 private:
  int64_t rank() const { return group_.rank(); }
  int64_t size() const { return group_.size(); }
  CallPlace place() const { return {.rank = rank(), .size = size()}; }

  shm::SharedGroup& group_;
  Table& table_;
};

}  // namespace shardway::backend
