// What a rank says of one of torch.distributed's calls. Each function throws c10::ValueError if the tensors
// do not fit together, or are not where the call runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "c10d_calls/collectives.h"
#include "c10d_calls/table.h"

namespace shardway::backend {

// Where a call runs.
struct CallPlace {
  int64_t rank = 0;
  int64_t size = 1;
  c10::DeviceType device = c10::DeviceType::CPU;
};

Terms broadcast_terms(const CallPlace& at, const at::Tensor& t, int64_t root);
Terms all_reduce_terms(const CallPlace& at, const at::Tensor& t, const c10d::ReduceOp& op);
Terms reduce_terms(const CallPlace& at, const at::Tensor& t, const c10d::ReduceOp& op, int64_t root);
Terms all_gather_terms(const CallPlace& at, const Tensors& outputs, const at::Tensor& input);
Terms all_gather_single_terms(const CallPlace& at, const at::Tensor& output, const at::Tensor& input);
Terms gather_terms(const CallPlace& at, const Tensors& outputs, const at::Tensor& input, int64_t root);
Terms scatter_terms(const CallPlace& at, const at::Tensor& output, const Tensors& inputs, int64_t root);
Terms reduce_scatter_terms(const CallPlace& at, const at::Tensor& output, const Tensors& inputs,
                           const c10d::ReduceOp& op);
Terms reduce_scatter_single_terms(const CallPlace& at, const at::Tensor& output, const at::Tensor& input,
                                  const c10d::ReduceOp& op);
Terms all_to_all_terms(const CallPlace& at, const Tensors& outputs, const Tensors& inputs);
Terms all_to_all_single_terms(const CallPlace& at, const at::Tensor& output, const at::Tensor& input,
                              const std::vector<int64_t>& output_splits,
                              const std::vector<int64_t>& input_splits);

}  // namespace shardway::backend
