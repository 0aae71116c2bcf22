#include "c10d_calls/call_terms.h"

#include <ATen/core/Tensor.h>

#include <numeric>

#include "c10d_calls/memory.h"
#include "c10d_calls/reductions.h"

namespace shardway::backend {
namespace {

Counts everywhere(const at::Tensor& t) { return {.each = t.numel()}; }

void check_root(const CallPlace& at, int64_t root) {
  TORCH_CHECK_VALUE(root >= 0 && root < at.size, "the root ", root, " is not among the ", at.size, " ranks");
}

void check_dtypes(const at::Tensor& input, const at::Tensor& output) {
  TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type(), "the input has ",
                    c10::getDtypeNames(input.scalar_type()).first, ", but the output ",
                    c10::getDtypeNames(output.scalar_type()).first);
}

// The elements that go to or come from each rank.
Counts split_counts(const char* name, const at::Tensor& t, const std::vector<int64_t>& splits, int64_t size) {
  const int64_t rows = t.dim() == 0 ? t.numel() : t.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, name, " has ", rows, " rows, which ", size,
                      " ranks cannot share equally");
    return {.each = t.numel() / size};
  }
  TORCH_CHECK_VALUE(static_cast<int64_t>(splits.size()) == size, name, " has ", splits.size(),
                    " split sizes for ", size, " ranks");
  for (const int64_t split : splits)
    TORCH_CHECK_VALUE(split >= 0, name, " has the negative split size ", split);
  const int64_t total = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  TORCH_CHECK_VALUE(total == rows, name, " has ", rows, " rows, but its split sizes add up to ", total);
  Counts counts;
  for (const int64_t split : splits) counts.by_rank.push_back(rows == 0 ? 0 : split * (t.numel() / rows));
  return counts;
}

}  // namespace

Terms broadcast_terms(const CallPlace& at, const at::Tensor& t, int64_t root) {
  check_root(at, root);
  check_tensor(t, at.device);
  return {.dtype = t.scalar_type(), .root = root, .sends = everywhere(t), .takes = everywhere(t)};
}

Terms all_reduce_terms(const CallPlace& at, const at::Tensor& t, const c10d::ReduceOp& op) {
  check_tensor(t, at.device);
  Terms terms{.dtype = t.scalar_type(), .sends = everywhere(t), .takes = everywhere(t)};
  terms.how = combine_of(op, t.scalar_type(), at.size, terms);
  return terms;
}

Terms reduce_terms(const CallPlace& at, const at::Tensor& t, const c10d::ReduceOp& op, int64_t root) {
  check_root(at, root);
  Terms terms = all_reduce_terms(at, t, op);
  terms.root = root;
  return terms;
}

Terms all_gather_terms(const CallPlace& at, const Tensors& outputs, const at::Tensor& input) {
  check_tensor(input, at.device);
  check_list(outputs, at.size, input.scalar_type(), at.device);
  return {.dtype = input.scalar_type(), .sends = everywhere(input), .takes = counts_of(outputs)};
}

Terms all_gather_single_terms(const CallPlace& at, const at::Tensor& output, const at::Tensor& input) {
  check_tensor(input, at.device);
  check_tensor(output, at.device);
  check_dtypes(input, output);
  TORCH_CHECK_VALUE(output.numel() == input.numel() * at.size, "the output has ", output.numel(),
                    " elements, but ", at.size, " ranks with inputs of ", input.numel(), " give ",
                    input.numel() * at.size);
  return {.dtype = input.scalar_type(), .sends = everywhere(input), .takes = everywhere(input)};
}

Terms gather_terms(const CallPlace& at, const Tensors& outputs, const at::Tensor& input, int64_t root) {
  check_root(at, root);
  check_tensor(input, at.device);
  Terms terms{
      .dtype = input.scalar_type(), .root = root, .sends = everywhere(input), .takes = everywhere(input)};
  if (at.rank == root) {
    check_list(outputs, at.size, input.scalar_type(), at.device);
    terms.takes = counts_of(outputs);
  } else {
    TORCH_CHECK_VALUE(outputs.empty(), "a rank other than the root has a list of outputs");
  }
  return terms;
}

Terms scatter_terms(const CallPlace& at, const at::Tensor& output, const Tensors& inputs, int64_t root) {
  check_root(at, root);
  check_tensor(output, at.device);
  Terms terms{
      .dtype = output.scalar_type(), .root = root, .sends = everywhere(output), .takes = everywhere(output)};
  if (at.rank == root) {
    check_list(inputs, at.size, output.scalar_type(), at.device);
    terms.sends = counts_of(inputs);
  } else {
    TORCH_CHECK_VALUE(inputs.empty(), "a rank other than the root has a list of inputs");
  }
  return terms;
}

Terms reduce_scatter_terms(const CallPlace& at, const at::Tensor& output, const Tensors& inputs,
                           const c10d::ReduceOp& op) {
  check_tensor(output, at.device);
  check_list(inputs, at.size, output.scalar_type(), at.device);
  Terms terms{.dtype = output.scalar_type(), .sends = counts_of(inputs), .takes = everywhere(output)};
  terms.how = combine_of(op, output.scalar_type(), at.size, terms);
  return terms;
}

Terms reduce_scatter_single_terms(const CallPlace& at, const at::Tensor& output, const at::Tensor& input,
                                  const c10d::ReduceOp& op) {
  check_tensor(output, at.device);
  check_tensor(input, at.device);
  check_dtypes(input, output);
  TORCH_CHECK_VALUE(input.numel() == output.numel() * at.size, "the input has ", input.numel(),
                    " elements, but ", at.size, " ranks with outputs of ", output.numel(), " take ",
                    output.numel() * at.size);
  Terms terms{.dtype = output.scalar_type(), .sends = everywhere(output), .takes = everywhere(output)};
  terms.how = combine_of(op, output.scalar_type(), at.size, terms);
  return terms;
}

Terms all_to_all_terms(const CallPlace& at, const Tensors& outputs, const Tensors& inputs) {
  TORCH_CHECK_VALUE(!inputs.empty(), "the list of inputs is empty");
  check_tensor(inputs.front(), at.device);
  const at::ScalarType dtype = inputs.front().scalar_type();
  check_list(inputs, at.size, dtype, at.device);
  check_list(outputs, at.size, dtype, at.device);
  return {.dtype = dtype, .sends = counts_of(inputs), .takes = counts_of(outputs)};
}

Terms all_to_all_single_terms(const CallPlace& at, const at::Tensor& output, const at::Tensor& input,
                              const std::vector<int64_t>& output_splits,
                              const std::vector<int64_t>& input_splits) {
  check_tensor(input, at.device);
  check_tensor(output, at.device);
  check_dtypes(input, output);
  return {.dtype = input.scalar_type(),
          .sends = split_counts("the input", input, input_splits, at.size),
          .takes = split_counts("the output", output, output_splits, at.size)};
}

}  // namespace shardway::backend
