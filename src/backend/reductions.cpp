// The collectives that combine data.
#include "backend/reductions.h"

#include <ATen/ATen.h>

#include "backend/collectives.h"
#include "backend/memory.h"
#include "backend/moves.h"
#include "transport/shm/shm_part.h"

namespace shardway::backend {
namespace {

using c10d::ReduceOp;

shm::Reduction reduction_of(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::PRODUCT:
      return shm::Reduction::product;
    case ReduceOp::MIN:
      return shm::Reduction::min;
    case ReduceOp::MAX:
      return shm::Reduction::max;
    case ReduceOp::BAND:
      return shm::Reduction::band;
    case ReduceOp::BOR:
      return shm::Reduction::bor;
    case ReduceOp::BXOR:
      return shm::Reduction::bxor;
    default:
      return shm::Reduction::sum;
  }
}

// The number that ranks tell one another for an op. The table is in the order of c10d's ops.
uint8_t number_of(ReduceOp::RedOpType op) {
  constexpr std::array<uint8_t, 9> kNumbers = {0, 1, 4, 2, 3, 5, 6, 7, 8};
  static_assert(kNumbers.size() == wire::kOpNames.size());
  TORCH_CHECK_VALUE(op < kNumbers.size(), "there is no such reduce op");
  return kNumbers.at(op);
}

double factor_of(const ReduceOp& op) {
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement != nullptr, "op premul_sum has no factor");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>()
                                             : supplement->double_factor;
}

Counts everywhere(const at::Tensor& t) { return {.each = t.numel()}; }

// What a rank brings to a reduce-scatter: a part per rank, one after another.
struct Brought {
  Counts counts;
  at::Tensor x;
};

// `bring` checks the input and returns it.
template <class Bring>
void scatter_reduced(shm::SharedGroup& group, Table& table, const at::Tensor& output, const ReduceOp& op,
                     Bring&& bring) {
  at::Tensor x;
  std::optional<Output> to;
  table.run(group, Collective::dist_reduce_scatter, [&] {
    check_tensor(output);
    Brought brought = bring();
    x = brought.x;
    Terms terms{
        .dtype = output.scalar_type(), .sends = std::move(brought.counts), .takes = everywhere(output)};
    to.emplace(output);
    PartsReduction reduction{.input = bytes_of(x),
                             .parts = spans_of(terms.sends, group.size(), static_cast<int64_t>(x.itemsize())),
                             .output = to->data()};
    reduction.how = combine_of(op, output.scalar_type(), group.size(), terms);
    return Prepared{std::move(terms), contiguous_of(reduction, group.rank())};
  });
  to->finish();
}

}  // namespace

shm::Combine combine_of(const ReduceOp& op, at::ScalarType dtype, int64_t size, Terms& terms) {
  terms.op = number_of(op.op_);
  const char* name = wire::kOpNames.at(terms.op);
  shm::Combine how{.element = element_of(dtype), .op = reduction_of(op.op_)};
  const auto dtype_name = c10::getDtypeNames(dtype).first;
  const bool is_exact = !at::isFloatingType(dtype) && !at::isComplexType(dtype);
  const bool scales = op.op_ == ReduceOp::AVG || op.op_ == ReduceOp::PREMUL_SUM;
  TORCH_CHECK_VALUE(!scales || !is_exact, "op ", name, " of ", dtype_name,
                    " is not defined: convert to a floating dtype");
  TORCH_CHECK_VALUE(shm::is_defined(how.element, how.op), "op ", name, " of ", dtype_name, " is not defined");
  if (op.op_ == ReduceOp::AVG) how.divisor = size;
  if (op.op_ == ReduceOp::PREMUL_SUM) terms.factor = how.factor = factor_of(op);
  return how;
}

void Collectives::all_reduce(const at::Tensor& t, const ReduceOp& op) {
  at::Tensor x;
  table_.run(group_, Collective::dist_all_reduce, [&] {
    check_tensor(t);
    Terms terms{.dtype = t.scalar_type(), .sends = everywhere(t), .takes = everywhere(t)};
    const shm::Combine how = combine_of(op, t.scalar_type(), size(), terms);
    x = packed(t);
    auto* memory = static_cast<std::byte*>(x.mutable_data_ptr());
    return Prepared{
        std::move(terms),
        shm::AllReduce{
            .input = memory, .output = memory, .bytes = static_cast<int64_t>(x.nbytes()), .how = how}};
  });
  if (!x.is_same(t)) t.copy_(x);
}

void Collectives::all_reduce_together(const Tensors& list, const ReduceOp& op) {
  bool is_of_one_dtype = !list.empty();
  for (const at::Tensor& t : list)
    is_of_one_dtype &= t.is_cpu() && t.layout() == at::kStrided && t.scalar_type() == list[0].scalar_type();
  if (!is_of_one_dtype || list.size() == 1) {
    for (const at::Tensor& t : list) all_reduce(t, op);
    return;
  }
  const at::Tensor all = joined(list);
  all_reduce(all, op);
  int64_t begin = 0;
  for (const at::Tensor& t : list) {
    const at::Tensor part = all.narrow(0, begin, t.numel());
    if (part.const_data_ptr() != t.const_data_ptr()) t.copy_(part.view(t.sizes()));
    begin += t.numel();
  }
}

void Collectives::reduce(const at::Tensor& t, const ReduceOp& op, int64_t root) {
  at::Tensor x;
  table_.run(group_, Collective::dist_reduce, [&] {
    check_root(root);
    check_tensor(t);
    Terms terms{.dtype = t.scalar_type(), .root = root, .sends = everywhere(t), .takes = everywhere(t)};
    x = packed(t);
    const auto bytes = static_cast<int64_t>(x.nbytes());
    PartsReduction reduction{.input = bytes_of(x)};
    reduction.how = combine_of(op, t.scalar_type(), size(), terms);
    for (int64_t to = 0; to < size(); ++to)
      reduction.parts.push_back({.begin = to > root ? bytes : 0, .bytes = to == root ? bytes : 0});
    if (rank() == root) reduction.output = static_cast<std::byte*>(x.mutable_data_ptr());
    return Prepared{std::move(terms), contiguous_of(reduction, rank())};
  });
  if (rank() == root && !x.is_same(t)) t.copy_(x);
}

void Collectives::reduce_scatter(const at::Tensor& output, const Tensors& inputs, const ReduceOp& op) {
  scatter_reduced(group_, table_, output, op, [&] {
    check_list(inputs, size(), output.scalar_type());
    return Brought{.counts = counts_of(inputs), .x = joined(inputs)};
  });
}

void Collectives::reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                        const ReduceOp& op) {
  scatter_reduced(group_, table_, output, op, [&] {
    check_tensor(input);
    TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type(), "the input has ",
                      c10::getDtypeNames(input.scalar_type()).first, ", but the output ",
                      c10::getDtypeNames(output.scalar_type()).first);
    TORCH_CHECK_VALUE(input.numel() == output.numel() * size(), "the input has ", input.numel(),
                      " elements, but ", size(), " ranks with outputs of ", output.numel(), " take ",
                      output.numel() * size());
    return Brought{.counts = everywhere(output), .x = packed(input)};
  });
}

}  // namespace shardway::backend
