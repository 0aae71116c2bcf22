// The collectives that combine data.
#include "c10d_calls/reductions.h"

#include <ATen/ATen.h>

#include "c10d_calls/memory.h"
#include "c10d_calls/memory_collectives.h"
#include "c10d_calls/moves.h"
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

// What a rank brings to a reduce-scatter: a part per rank, one after another.
struct Brought {
  Terms terms;
  at::Tensor x;
};

// `bring` checks the tensors and returns the input.
template <class Bring>
void scatter_reduced(shm::SharedGroup& group, Table& table, const at::Tensor& output, Bring&& bring) {
  at::Tensor x;
  std::optional<Output> to;
  table.run(group, Collective::dist_reduce_scatter, [&] {
    Brought brought = bring();
    x = brought.x;
    to.emplace(output);
    const PartsReduction reduction{
        .input = bytes_of(x),
        .parts = spans_of(brought.terms.sends, group.size(), static_cast<int64_t>(x.itemsize())),
        .output = to->data(),
        .how = brought.terms.how};
    return Prepared{std::move(brought.terms), contiguous_of(reduction, group.rank())};
  });
  to->finish();
}

}  // namespace

std::optional<Op> op_of(const ReduceOp& op) {
  switch (op) {
    case ReduceOp::SUM:
      return Op::sum;
    case ReduceOp::AVG:
      return Op::avg;
    case ReduceOp::MIN:
      return Op::min;
    case ReduceOp::MAX:
      return Op::max;
    case ReduceOp::PRODUCT:
      return Op::product;
    default:
      return std::nullopt;
  }
}

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

void MemoryCollectives::all_reduce(const at::Tensor& t, const ReduceOp& op) {
  at::Tensor x;
  table_.run(group_, Collective::dist_all_reduce, [&] {
    Terms terms = all_reduce_terms(place(), t, op);
    const shm::Combine how = terms.how;
    x = packed(t);
    auto* memory = static_cast<std::byte*>(x.mutable_data_ptr());
    return Prepared{
        std::move(terms),
        shm::AllReduce{
            .input = memory, .output = memory, .bytes = static_cast<int64_t>(x.nbytes()), .how = how}};
  });
  if (!x.is_same(t)) t.copy_(x);
}

void MemoryCollectives::all_reduce_together(const Tensors& list, const ReduceOp& op) {
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

void MemoryCollectives::reduce(const at::Tensor& t, const ReduceOp& op, int64_t root) {
  at::Tensor x;
  table_.run(group_, Collective::dist_reduce, [&] {
    Terms terms = reduce_terms(place(), t, op, root);
    x = packed(t);
    const auto bytes = static_cast<int64_t>(x.nbytes());
    PartsReduction reduction{.input = bytes_of(x), .how = terms.how};
    for (int64_t to = 0; to < size(); ++to)
      reduction.parts.push_back({.begin = to > root ? bytes : 0, .bytes = to == root ? bytes : 0});
    if (rank() == root) reduction.output = static_cast<std::byte*>(x.mutable_data_ptr());
    return Prepared{std::move(terms), contiguous_of(reduction, rank())};
  });
  if (rank() == root && !x.is_same(t)) t.copy_(x);
}

void MemoryCollectives::reduce_scatter(const at::Tensor& output, const Tensors& inputs, const ReduceOp& op) {
  scatter_reduced(group_, table_, output, [&] {
    Terms terms = reduce_scatter_terms(place(), output, inputs, op);
    return Brought{.terms = std::move(terms), .x = joined(inputs)};
  });
}

void MemoryCollectives::reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                              const ReduceOp& op) {
  scatter_reduced(group_, table_, output, [&] {
    Terms terms = reduce_scatter_single_terms(place(), output, input, op);
    return Brought{.terms = std::move(terms), .x = packed(input)};
  });
}

}  // namespace shardway::backend
