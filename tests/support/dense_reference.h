// What a collective gives, computed by one rank from the inputs of all with plain ATen calls.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <vector>

#include "exchange.h"
#include "shardway/route.h"

namespace shardway::testing {

using Tensors = std::vector<at::Tensor>;

// Random bits of any dtype: for moves, which keep every bit.
inline at::Tensor random_bits(const std::vector<int64_t>& shape, at::ScalarType dtype, uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto bytes = Box::whole(shape).volume() * static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t values = dtype == at::kBool ? 2 : 256;
  return at::randint(values, {bytes}, generator, at::kByte).view(dtype).view(shape);
}

// Random numbers of any dtype that reductions take; of floats, sums depend on the order of the addends.
inline at::Tensor random_numbers(const std::vector<int64_t>& shape, at::ScalarType dtype, uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  if (!at::isFloatingType(dtype) && !at::isComplexType(dtype)) {
    return at::randint(dtype == at::kBool ? 2 : 5, shape, generator, at::kLong).to(dtype);
  }
  const auto wide = at::isComplexType(dtype) ? at::kComplexDouble : at::kDouble;
  const at::Tensor magnitude = at::pow(10.0, at::randint(-3, 4, shape, generator, at::kDouble));
  return (at::randn(shape, generator, wide) * magnitude).to(dtype);
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const auto bytes = [](const at::Tensor& t) {
    return t.resolve_conj().resolve_neg().contiguous().flatten().view(at::kByte);
  };
  return a.numel() == 0 || at::equal(bytes(a), bytes(b));
}

inline at::Tensor box_of(at::Tensor t, const Box& box) {
  for (size_t d = 0; d < box.offset.size(); ++d)
    t = t.narrow(static_cast<int64_t>(d), box.offset[d], box.extent[d]);
  return t;
}

inline bool accumulates_in_f32(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

inline at::Tensor combined(Op op, const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case Op::min:
      return at::minimum(a, b);
    case Op::max:
      return at::maximum(a, b);
    case Op::product:
      return at::mul(a, b).to(a.scalar_type());
    default:
      return at::add(a, b).to(a.scalar_type());
  }
}

inline at::Tensor divided(const at::Tensor& t, int64_t divisor) {
  if (t.is_complex()) return at::view_as_complex(divided(at::view_as_real(t), divisor));
  return t / at::full({}, divisor, t.options());
}

// A label per rank; ranks with equal labels share a host. Empty: all do. A test of ranks on several hosts
// sets it before they start.
inline std::vector<int64_t>& host_labels() {
  static std::vector<int64_t> labels;
  return labels;
}

// The ranks of each host, in the order in which hosts are combined: that of their first ranks.
inline std::vector<std::vector<size_t>> ranks_by_host(size_t ranks) {
  std::vector<std::vector<size_t>> hosts;
  std::vector<int64_t> labels_of_hosts;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const int64_t label = host_labels().empty() ? 0 : host_labels()[rank];
    const auto found = std::find(labels_of_hosts.begin(), labels_of_hosts.end(), label);
    const auto host = static_cast<size_t>(found - labels_of_hosts.begin());
    if (host == hosts.size()) {
      hosts.emplace_back();
      labels_of_hosts.push_back(label);
    }
    hosts[host].push_back(rank);
  }
  return hosts;
}

// The addends folded in order, host by host: f16 and bf16 in f32, divided (avg), then rounded once.
inline at::Tensor folded(const Tensors& addends, Op op) {
  const auto dtype = addends[0].scalar_type();
  const auto wide = accumulates_in_f32(dtype) ? at::kFloat : dtype;
  at::Tensor result;
  for (const auto& ranks : ranks_by_host(addends.size())) {
    at::Tensor of_host = addends[ranks[0]].to(wide);
    for (size_t i = 1; i < ranks.size(); ++i) of_host = combined(op, of_host, addends[ranks[i]].to(wide));
    result = result.defined() ? combined(op, result, of_host) : of_host;
  }
  if (op == Op::avg) result = divided(result, static_cast<int64_t>(addends.size()));
  return result.to(dtype);
}

// What some ranks bring to the output of a rank: their combination, and where anything landed.
struct Brought {
  at::Tensor value = {};
  at::Tensor landed = {};

  void add(Op op, const at::Tensor& there, const at::Tensor& more) {
    const at::Tensor sum = at::where(landed, combined(op, value, there), there);
    value.copy_(at::where(more, sum, value));
    landed.logical_or_(more);
  }
};

inline Brought brought_by(const std::vector<size_t>& ranks, const Exchange& exchange, int64_t to,
                          const Tensors& inputs, const at::Tensor& like) {
  Brought brought{.value = at::zeros_like(like), .landed = at::zeros(like.sizes(), at::kBool)};
  for (const size_t from : ranks) {
    for (const Transfer& transfer : exchange.transfers) {
      if (transfer.to != to || transfer.from != static_cast<int64_t>(from)) continue;
      const at::Tensor box = box_of(inputs[from], transfer.source).to(like.scalar_type());
      Brought part{.value = box_of(brought.value, transfer.target),
                   .landed = box_of(brought.landed, transfer.target)};
      part.add(exchange.op, box, at::ones_like(part.landed));
    }
  }
  return brought;
}

// What rank `rank` has in its output after `exchange`, which held `before`.
inline at::Tensor after(const Exchange& exchange, int64_t rank, const Tensors& inputs,
                        const at::Tensor& before) {
  const auto dtype = before.scalar_type();
  const at::Tensor wide = before.to(accumulates_in_f32(dtype) ? at::kFloat : dtype);
  Brought all{.value = at::zeros_like(wide), .landed = at::zeros(wide.sizes(), at::kBool)};
  for (const auto& ranks : ranks_by_host(inputs.size())) {
    const Brought of_host = brought_by(ranks, exchange, rank, inputs, wide);
    all.add(exchange.op, of_host.value, of_host.landed);
  }
  const at::Tensor result = exchange.divisor == 1 ? all.value : divided(all.value, exchange.divisor);
  return at::where(all.landed, result, wide).to(dtype);
}

// The same values in memory that is not contiguous.
enum class Memory : uint8_t { contiguous, transposed, every_second, inside_a_larger_tensor };

inline at::Tensor empty_in(Memory memory, const std::vector<int64_t>& shape, at::ScalarType dtype) {
  if (shape.empty() || memory == Memory::contiguous) return at::empty(shape, dtype);
  std::vector<int64_t> larger = shape;
  switch (memory) {
    case Memory::transposed:
      std::swap(larger.front(), larger.back());
      return at::empty(larger, dtype).transpose(0, -1);
    case Memory::every_second:
      larger.back() *= 2;
      return at::empty(larger, dtype).slice(-1, 0, larger.back(), 2);
    default:
      for (int64_t& length : larger) length += 2;
      at::Tensor inner = at::empty(larger, dtype);
      for (size_t d = 0; d < shape.size(); ++d) inner = inner.narrow(static_cast<int64_t>(d), 1, shape[d]);
      return inner;
  }
}

inline at::Tensor in_memory(Memory memory, const at::Tensor& t) {
  return empty_in(memory, t.sizes().vec(), t.scalar_type()).copy_(t);
}

}  // namespace shardway::testing
