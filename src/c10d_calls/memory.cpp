#include "c10d_calls/memory.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "shardway/memory.h"
#include "transport/memory/tensors.h"

namespace shardway::backend {
namespace {

bool is_packed(const at::Tensor& t) { return t.is_contiguous() && !t.is_conj() && !t.is_neg(); }

// Memory that peers can read or, if there is no more of it, the process's own.
at::Tensor scratch(int64_t count, at::ScalarType dtype) {
  try {
    return empty({count}, dtype);
  } catch (const c10::OutOfMemoryError&) {
    return empty_tensor({count}, dtype);
  }
}

bool lie_one_behind_the_other(const std::vector<at::Tensor>& list) {
  const auto* next = static_cast<const std::byte*>(list.front().const_data_ptr());
  for (const at::Tensor& t : list) {
    if (!is_packed(t) || t.storage().data() != list.front().storage().data()) return false;
    if (t.numel() > 0 && t.const_data_ptr() != next) return false;
    next += t.nbytes();
  }
  return true;
}

}  // namespace

void check_tensor(const at::Tensor& t, c10::DeviceType device) {
  TORCH_CHECK_VALUE(t.defined(), "a tensor is not there");
  TORCH_CHECK_VALUE(t.layout() == at::kStrided, "a tensor is ", t.layout(),
                    ", but only dense ones are moved");
  TORCH_CHECK_VALUE(t.device().type() == device, "a tensor is on ", t.device(), ", but ",
                    device == c10::DeviceType::CPU ? "the group moves CPU tensors only"
                                                   : "others of the call are on a GPU");
  TORCH_CHECK_VALUE(!t.is_quantized(), "a tensor is quantized: pass its int_repr() or dequantize()");
}

void check_list(const std::vector<at::Tensor>& list, int64_t size, at::ScalarType dtype,
                c10::DeviceType device) {
  TORCH_CHECK_VALUE(static_cast<int64_t>(list.size()) == size, "a list has ", list.size(), " tensors for ",
                    size, " ranks");
  for (const at::Tensor& t : list) {
    check_tensor(t, device);
    TORCH_CHECK_VALUE(t.scalar_type() == dtype, "a list has tensors of ",
                      c10::getDtypeNames(t.scalar_type()).first, " and of ", c10::getDtypeNames(dtype).first);
  }
}

const at::Tensor& only(const char* name, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, name, ": one tensor is expected, not ", tensors.size());
  return tensors.front();
}

const std::vector<at::Tensor>& only(const char* name, const std::vector<std::vector<at::Tensor>>& lists) {
  TORCH_CHECK_VALUE(lists.size() == 1, name, ": one list is expected, not ", lists.size());
  return lists.front();
}

void check_lengths(const char* name, size_t outputs, size_t inputs) {
  TORCH_CHECK_VALUE(outputs == inputs, name, ": ", outputs, " outputs for ", inputs, " inputs");
}

at::Tensor packed(const at::Tensor& t) {
  return is_packed(t) ? t : t.resolve_conj().resolve_neg().contiguous();
}

at::Tensor joined(const std::vector<at::Tensor>& list) {
  int64_t count = 0;
  for (const at::Tensor& t : list) count += t.numel();
  const at::Tensor& first = list.front();
  if (lie_one_behind_the_other(list)) return first.as_strided({count}, {1});
  at::Tensor all = first.is_cpu() ? scratch(count, first.scalar_type()) : first.new_empty({count});
  int64_t begin = 0;
  for (const at::Tensor& t : list) {
    all.narrow(0, begin, t.numel()).copy_(t.reshape({-1}));
    begin += t.numel();
  }
  return all;
}

std::span<const std::byte> bytes_of(const at::Tensor& t) {
  return {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()};
}

Output::Output(const at::Tensor& t)
    : tensor_(t), buffer_(is_packed(t) ? t : empty_tensor(t.sizes(), t.options())) {}

void Output::finish() const {
  if (!buffer_.is_same(tensor_)) tensor_.copy_(buffer_);
}

Outputs::Outputs(const std::vector<at::Tensor>& list) {
  for (const at::Tensor& t : list) outputs_.emplace_back(t);
}

Target Outputs::target() const {
  if (outputs_.empty()) return {};
  Target target{.base = outputs_.front().data()};
  for (const Output& output : outputs_) {
    // Subtracts integers, not pointers: the tensors need not share an allocation.
    const auto begin = reinterpret_cast<intptr_t>(output.data()) - reinterpret_cast<intptr_t>(target.base);
    target.parts.push_back({.begin = begin, .bytes = static_cast<int64_t>(output.buffer().nbytes())});
  }
  return target;
}

void Outputs::finish() const {
  for (const Output& output : outputs_) output.finish();
}

std::vector<Span> spans_of(const Counts& counts, int64_t size, int64_t element_bytes) {
  std::vector<Span> spans;
  int64_t begin = 0;
  for (int64_t rank = 0; rank < size; ++rank) {
    const int64_t bytes = counts.of(rank) * element_bytes;
    spans.push_back({.begin = begin, .bytes = bytes});
    begin += bytes;
  }
  return spans;
}

Counts counts_of(const std::vector<at::Tensor>& list) {
  Counts counts{.each = list.empty() ? 0 : list.front().numel()};
  const bool is_uniform =
      std::all_of(list.begin(), list.end(), [&](const at::Tensor& t) { return t.numel() == counts.each; });
  if (is_uniform) return counts;
  for (const at::Tensor& t : list) counts.by_rank.push_back(t.numel());
  return counts;
}

}  // namespace shardway::backend
