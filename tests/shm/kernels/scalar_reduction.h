// Reductions one element at a time, in the plainest way: what the loops are compared with.
#pragma once

#include <cmath>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "shm/kernels/reduce.h"

namespace shardway::shm::testing {

struct Bool {
  uint8_t byte;
};
struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

#ifdef __aarch64__
using CompilersHalf = __fp16;  // older compilers know the other name in C alone
#else
using CompilersHalf = _Float16;
#endif

inline float value_of(F16 half) {
  CompilersHalf value;
  std::memcpy(&value, &half, sizeof(value));
  return static_cast<float>(value);
}
inline float value_of(Bf16 half) {
  const uint32_t bits = uint32_t{half.bits} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
inline bool value_of(Bool b) { return b.byte != 0; }
template <class T>
T value_of(T value) {
  return value;
}

template <class T, class A>
T rounded(A value) {
  if constexpr (std::same_as<T, Bool>) {
    return {.byte = value ? uint8_t{1} : uint8_t{0}};
  } else if constexpr (std::same_as<T, F16>) {
    if (std::isnan(value)) return {.bits = static_cast<uint16_t>(std::signbit(value) ? 0xFE00 : 0x7E00)};
    const auto half = static_cast<CompilersHalf>(value);
    F16 result;
    std::memcpy(&result, &half, sizeof(half));
    return result;
  } else if constexpr (std::same_as<T, Bf16>) {
    if (std::isnan(value)) return {.bits = 0x7FC0};
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    const uint32_t dropped = bits & 0xFFFF;
    const bool up = dropped > 0x8000 || (dropped == 0x8000 && (bits & 0x10000) != 0);
    return {.bits = static_cast<uint16_t>((bits >> 16) + (up ? 1 : 0))};
  } else {
    return value;
  }
}

template <class A>
inline constexpr bool kIsComplex = false;
template <class T>
inline constexpr bool kIsComplex<std::complex<T>> = true;

template <class A>
A times(A a, A b) {
  if constexpr (std::same_as<A, bool>) {
    return a && b;
  } else if constexpr (std::integral<A>) {
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else if constexpr (kIsComplex<A>) {
    const auto real = a.real() * b.real() - a.imag() * b.imag();
    return {real, a.real() * b.imag() + a.imag() * b.real()};
  } else {
    return a * b;
  }
}

template <class A>
A extreme(A a, A b, bool least) {
  if constexpr (std::floating_point<A>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return (least ? b < a : a < b) ? b : a;
}

template <std::integral A>
A on_bits(Reduction op, A a, A b) {
  if (op == Reduction::band) return static_cast<A>(a & b);
  return static_cast<A>(op == Reduction::bor ? a | b : a ^ b);
}

template <class A>
A combined(Reduction op, A a, A b) {
  if (op == Reduction::product) return times(a, b);
  if constexpr (!kIsComplex<A>) {
    if (op == Reduction::min || op == Reduction::max) return extreme(a, b, op == Reduction::min);
  }
  if constexpr (std::integral<A>) {
    if (op != Reduction::sum) return on_bits(op, a, b);
  }
  if constexpr (std::same_as<A, bool>) return a || b;
  if constexpr (std::integral<A>) return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  return static_cast<A>(a + b);
}

template <class A>
A scaled(A value, double factor) {
  if constexpr (std::same_as<A, bool>) {
    return value && factor != 0;
  } else if constexpr (std::integral<A>) {
    return times(value, static_cast<A>(static_cast<int64_t>(factor)));
  } else if constexpr (kIsComplex<A>) {
    const auto by = static_cast<typename A::value_type>(factor);
    return {value.real() * by, value.imag() * by};
  } else {
    return value * static_cast<A>(factor);
  }
}

template <class A>
A divided(A value, int64_t divisor) {
  if constexpr (std::integral<A>) {
    return value;
  } else if constexpr (kIsComplex<A>) {
    const auto by = static_cast<typename A::value_type>(divisor);
    return {value.real() / by, value.imag() / by};
  } else {
    return value / static_cast<A>(divisor);
  }
}

template <class T>
T reduced_element(const std::vector<const std::byte*>& addends, int64_t i, const Combine& how) {
  const auto addend = [&](size_t a) {
    T element;
    std::memcpy(&element, addends[a] + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    const auto value = value_of(element);
    return how.factor == 1 ? value : scaled(value, how.factor);
  };
  auto sum = addend(0);
  for (size_t a = 1; a < addends.size(); ++a) sum = combined(how.op, sum, addend(a));
  if (how.divisor != 1) sum = divided(sum, how.divisor);
  return rounded<T>(sum);
}

}  // namespace shardway::shm::testing
