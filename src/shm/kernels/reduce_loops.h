// The reduction of a run of elements, as a template over the instruction set: `Isa` has kBytes, a vector's
// size, Words, which widens 16-bit lanes to 32 bits and narrows them back, and F16, the conversions of f16.
#pragma once

#include <type_traits>

#include "shm/kernels/kernels.h"
#include "shm/kernels/vectors.h"

namespace shardway::shm {

// How elements of one kind lie in memory, and in which lanes they are combined.
template <class Isa, class T>
struct Lanes {
  using V = Vector<T, Isa::kBytes>;
  using Lane = T;
  static constexpr int64_t kMemoryBytes = sizeof(V);
  static constexpr int64_t kElementBytes = sizeof(T);

  static SHARDWAY_INLINE V read(const std::byte* from) { return load<V>(from); }
  static SHARDWAY_INLINE void write(std::byte* to, V v) { store(to, v); }
};

template <class Isa>
struct BooleanLanes : Lanes<Isa, uint8_t> {
  using V = typename Lanes<Isa, uint8_t>::V;

  static SHARDWAY_INLINE V read(const std::byte* from) { return load<V>(from) != 0 ? V{} + 1 : V{}; }
};

template <class Isa>
struct F16Lanes {
  using V = Vector<float, Isa::kBytes>;
  using Lane = float;
  using Half = Vector<uint16_t, Isa::kBytes / 2>;
  static constexpr int64_t kMemoryBytes = sizeof(Half);
  static constexpr int64_t kElementBytes = sizeof(uint16_t);

  static SHARDWAY_INLINE V read(const std::byte* from) { return Isa::F16::widen(load<Half>(from)); }
  static SHARDWAY_INLINE void write(std::byte* to, V v) { store(to, Isa::F16::narrow(v)); }
};

// f32 to bf16 rounds to the nearest, ties to even; a NaN becomes 0x7FC0.
template <class Isa>
struct Bf16Lanes {
  using V = Vector<float, Isa::kBytes>;
  using Lane = float;
  using Half = Vector<uint16_t, Isa::kBytes / 2>;
  using U32 = Vector<uint32_t, Isa::kBytes>;
  static constexpr int64_t kMemoryBytes = sizeof(Half);
  static constexpr int64_t kElementBytes = sizeof(uint16_t);

  static SHARDWAY_INLINE V read(const std::byte* from) {
    return bits_as<V>(Isa::Words::widen(load<Half>(from)) << 16);
  }
  static SHARDWAY_INLINE void write(std::byte* to, V v) {
    const U32 bits = bits_as<U32>(v);
    const U32 rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    const U32 half = (bits & 0x7FFFFFFFU) > 0x7F800000U ? U32{} + 0x7FC0U : rounded;
    store(to, Isa::Words::narrow(half));
  }
};

// If both operands are NaNs, the machine keeps the first one's bits, but a compiler may swap the operands. So
// if `a` is a NaN it serves as both operands, and the first addend's NaN stays.
template <class V>
SHARDWAY_INLINE V beside(V a, V b) {
  return a != a ? a : b;
}

struct Sum {
  template <class V>
  static SHARDWAY_INLINE V of(V a, V b) {
    return a + beside(a, b);
  }
};
struct Product {
  template <class V>
  static SHARDWAY_INLINE V of(V a, V b) {
    return a * beside(a, b);
  }
};

// For elements whose rounding turns all NaNs into one: there is no need to keep the first.
struct SumWithOneNan {
  template <class V>
  static SHARDWAY_INLINE V of(V a, V b) {
    return a + b;
  }
};
struct ProductWithOneNan {
  template <class V>
  static SHARDWAY_INLINE V of(V a, V b) {
    return a * b;
  }
};

struct And {
  template <class V>
  static SHARDWAY_INLINE V of(V a, V b) {
    return a & b;
  }
};
struct Or {
  template <class V>
  static SHARDWAY_INLINE V of(V a, V b) {
    return a | b;
  }
};
struct Xor {
  template <class V>
  static SHARDWAY_INLINE V of(V a, V b) {
    return a ^ b;
  }
};

// The first NaN stays, wherever it stands among the addends. Among equal numbers (+0 and -0) the first stays.
struct Min {
  template <class V>
  static SHARDWAY_INLINE V of(V a, V b) {
    const V least = b < a ? b : a;
    return a != a ? a : (b != b ? b : least);
  }
};
struct Max {
  template <class V>
  static SHARDWAY_INLINE V of(V a, V b) {
    const V most = a < b ? b : a;
    return a != a ? a : (b != b ? b : most);
  }
};

// For numbers that lie as real, imaginary, real, …: (a + bi)(c + di) = (ac - bd) + (ad + bc)i.
struct ComplexProduct {
  template <class V>
  static SHARDWAY_INLINE V of(V x, V y) {
    constexpr int kLanes = sizeof(V) / sizeof(x[0]);
    V real{};
    V imaginary{};
    V swapped{};
    for (int i = 0; i < kLanes; ++i) {
      real[i] = x[i & ~1];
      imaginary[i] = x[i | 1];
      swapped[i] = y[i ^ 1];
    }
    const V first = Product::of<V>(real, y);
    const V second = Product::of<V>(imaginary, swapped);
    V product = Sum::of<V>(first, second);
    const V difference = first - beside(first, second);
    for (int i = 0; i < kLanes; i += 2) product[i] = difference[i];
    return product;
  }
};

// The factor and divisor of a whole run. Dividing by a power of two gives the same bits as multiplying by its
// inverse.
template <class Lane>
struct Scale {
  Lane factor = 1;
  Lane divisor = 1;
  Lane inverse = 1;
  bool divides = false;
  bool inverts = false;
};

template <class Lane>
SHARDWAY_INLINE Scale<Lane> scale_of(const Combine& how) {
  Scale<Lane> scale;
  if constexpr (std::is_floating_point_v<Lane>) {
    const bool is_power_of_two = (how.divisor & (how.divisor - 1)) == 0;
    scale.factor = static_cast<Lane>(how.factor);
    scale.divisor = static_cast<Lane>(how.divisor);
    scale.inverse = 1 / scale.divisor;
    scale.inverts = how.divisor != 1 && is_power_of_two;
    scale.divides = how.divisor != 1 && !is_power_of_two;
  } else {  // a negative factor wraps, as the product of signed integers does
    scale.factor = static_cast<Lane>(how.factor < 0 ? static_cast<uint64_t>(static_cast<int64_t>(how.factor))
                                                    : static_cast<uint64_t>(how.factor));
  }
  return scale;
}

// The four (or fewer) vectors of accumulators stay in registers while every addend passes over them once.
constexpr int kVectorsAtOnce = 4;

// Reduces `vectors` vectors at byte `at`. If `rest` is not 0, there is one vector, and only its first `rest`
// bytes are reduced.
template <class L, class Op, bool scaled, int vectors>
SHARDWAY_INLINE void reduce_vectors(std::byte* to, const std::byte* const* addends, int64_t addend_count,
                                    int64_t at, int64_t rest, const Scale<typename L::Lane>& scale) {
  using V = typename L::V;
  const auto addend = [&](int64_t which, int v) -> V {
    const std::byte* from = addends[which] + at + v * L::kMemoryBytes;
    std::byte part[L::kMemoryBytes];
    if (rest != 0) {
      __builtin_memset(part, 0, sizeof(part));
      __builtin_memcpy(part, from, static_cast<size_t>(rest));
      from = part;
    }
    if constexpr (scaled) return Product::of<V>(L::read(from), V{} + scale.factor);
    return L::read(from);
  };
  V sums[vectors];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) sums[v] = addend(0, v);
  for (int64_t a = 1; a < addend_count; ++a) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[v] = Op::template of<V>(sums[v], addend(a, v));
  }
  if constexpr (std::is_floating_point_v<typename L::Lane>) {
    if (scale.inverts) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[v] = sums[v] * scale.inverse;
    }
    if (scale.divides) {
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[v] = sums[v] / scale.divisor;
    }
  }
  if (rest != 0) {
    std::byte part[L::kMemoryBytes];
    L::write(part, sums[0]);
    __builtin_memcpy(to + at, part, static_cast<size_t>(rest));
    return;
  }
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) L::write(to + at + v * L::kMemoryBytes, sums[v]);
}

template <class L, class Op, bool scaled>
SHARDWAY_INLINE void reduce_bytes(std::byte* to, const std::byte* const* addends, int64_t addend_count,
                                  int64_t bytes, const Scale<typename L::Lane>& scale) {
  constexpr int64_t kStep = kVectorsAtOnce * L::kMemoryBytes;
  int64_t at = 0;
  for (; at + kStep <= bytes; at += kStep) {
    reduce_vectors<L, Op, scaled, kVectorsAtOnce>(to, addends, addend_count, at, 0, scale);
  }
  for (; at + L::kMemoryBytes <= bytes; at += L::kMemoryBytes) {
    reduce_vectors<L, Op, scaled, 1>(to, addends, addend_count, at, 0, scale);
  }
  if (at < bytes) reduce_vectors<L, Op, scaled, 1>(to, addends, addend_count, at, bytes - at, scale);
}

template <class L, class Op, bool scaled, int lanes_per_element = 1>
void reduce_run(std::byte* to, const std::byte* const* addends, int64_t addend_count, int64_t count,
                const Combine& how) {
  using Lane = typename L::Lane;
  const Scale<Lane> scale = scale_of<Lane>(how);
  const int64_t bytes = count * lanes_per_element * L::kElementBytes;
  if (addend_count == 2) return reduce_bytes<L, Op, scaled>(to, addends, 2, bytes, scale);
  reduce_bytes<L, Op, scaled>(to, addends, addend_count, bytes, scale);
}

}  // namespace shardway::shm
