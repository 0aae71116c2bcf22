// Vectors of lanes in the compiler's own notation. Everything here and in the loop headers is a template over
// the instruction set or always inlined, so that the linker never takes one set's code for another's.
#pragma once

#include <cstddef>
#include <cstdint>

#define SHARDWAY_INLINE inline __attribute__((always_inline))

namespace shardway::shm {

template <class Lane, int bytes>
struct VectorType {
  using type __attribute__((vector_size(bytes))) = Lane;
};
template <class Lane, int bytes>
using Vector = typename VectorType<Lane, bytes>::type;

template <class V>
SHARDWAY_INLINE V load(const std::byte* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(V));
  return v;
}

template <class V>
SHARDWAY_INLINE void store(std::byte* to, const V& v) {
  __builtin_memcpy(to, &v, sizeof(V));
}

template <class To, class From>
SHARDWAY_INLINE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

// Conversions of f16 that need no f16 instructions. `Words` widens 16-bit lanes to 32 bits and narrows them
// back. f32 to f16 rounds to the nearest, ties to even; a NaN becomes the quiet NaN of its sign.
template <class Words>
struct F16InIntegers {
  using U16 = typename Words::U16;
  using U32 = typename Words::U32;
  using F32 = Vector<float, sizeof(U32)>;

  static SHARDWAY_INLINE F32 widen(U16 half) {
    const U32 word = Words::widen(half) << 16;
    const U32 twice = word + word;
    const F32 normal = bits_as<F32>((twice >> 4) + (0xE0U << 23)) * 0x1.0p-112F;
    const F32 subnormal = bits_as<F32>((twice >> 17) | (126U << 23)) - 0.5F;
    const U32 magnitude = twice < (1U << 27) ? bits_as<U32>(subnormal) : bits_as<U32>(normal);
    return bits_as<F32>((word & 0x80000000U) | magnitude);
  }

  static SHARDWAY_INLINE U16 narrow(F32 value) {
    const U32 word = bits_as<U32>(value);
    const U32 twice = word + word;
    const F32 magnitude = bits_as<F32>(word & 0x7FFFFFFFU);
    const U32 exponent = twice & 0xFF000000U;
    const U32 floor = U32{} + 0x71000000U;
    const U32 bias = exponent < floor ? floor : exponent;
    const F32 rounded = bits_as<F32>((bias >> 1) + 0x07800000U) + (magnitude * 0x1.0p+112F) * 0x1.0p-110F;
    const U32 bits = bits_as<U32>(rounded);
    const U32 finite = ((bits >> 13) & 0x7C00U) + (bits & 0x0FFFU);
    const U32 half = twice > 0xFF000000U ? U32{} + 0x7E00U : finite;
    return Words::narrow(((word & 0x80000000U) >> 16) | half);
  }
};

}  // namespace shardway::shm
