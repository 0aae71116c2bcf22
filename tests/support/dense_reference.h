// What a collective gives, computed by one rank from the inputs of all with plain ATen calls.
#pragma once

#include <ATen/ATen.h>

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

// The addends folded in order: f16 and bf16 in f32, divided (avg), then rounded once.
inline at::Tensor folded(const Tensors& addends, Op op) {
  const auto dtype = addends[0].scalar_type();
  const auto wide = accumulates_in_f32(dtype) ? at::kFloat : dtype;
  at::Tensor result = addends[0].to(wide);
  for (size_t i = 1; i < addends.size(); ++i) result = combined(op, result, addends[i].to(wide));
  if (op == Op::avg) result = divided(result, static_cast<int64_t>(addends.size()));
  return result.to(dtype);
}

// What rank `rank` has in its output after `exchange`, which held `before`.
inline at::Tensor after(const Exchange& exchange, int64_t rank, const Tensors& inputs,
                        const at::Tensor& before) {
  const auto dtype = before.scalar_type();
  const auto wide = accumulates_in_f32(dtype) ? at::kFloat : dtype;
  at::Tensor result = before.to(wide, /*non_blocking=*/false, /*copy=*/true);
  at::Tensor landed = at::zeros(before.sizes(), at::kLong);
  for (size_t from = 0; from < inputs.size(); ++from) {
    for (const Transfer& transfer : exchange.transfers) {
      if (transfer.to != rank || transfer.from != static_cast<int64_t>(from)) continue;
      const at::Tensor value = box_of(inputs[from], transfer.source).to(wide);
      const at::Tensor here = box_of(result, transfer.target);
      const at::Tensor already = box_of(landed, transfer.target);
      if (already.any().item<bool>()) {
        here.copy_(at::where(already > 0, combined(exchange.op, here, value), value));
      } else {
        here.copy_(value);
      }
      already.add_(1);
    }
  }
  if (exchange.divisor != 1) result = at::where(landed > 0, divided(result, exchange.divisor), result);
  return result.to(dtype);
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
