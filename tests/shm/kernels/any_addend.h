// Elements of every kind to reduce.
#pragma once

#include <array>
#include <limits>

#include "every_isa.h"
#include "scalar_reduction.h"

namespace shardway::shm::testing {

// Calls `body` with a value of the type that lies in memory.
template <class Body>
void with_type(Element element, const Body& body) {
  switch (element) {
    case Element::boolean:
      return body(Bool{});
    case Element::u8:
      return body(uint8_t{});
    case Element::u16:
      return body(uint16_t{});
    case Element::u32:
      return body(uint32_t{});
    case Element::u64:
      return body(uint64_t{});
    case Element::i8:
      return body(int8_t{});
    case Element::i16:
      return body(int16_t{});
    case Element::i32:
      return body(int32_t{});
    case Element::i64:
      return body(int64_t{});
    case Element::f16:
      return body(F16{});
    case Element::bf16:
      return body(Bf16{});
    case Element::f32:
      return body(float{});
    case Element::f64:
      return body(double{});
    case Element::complex64:
      return body(std::complex<float>{});
    case Element::complex128:
      return body(std::complex<double>{});
  }
}

// Random bits, among them NaNs, infinities and subnormal numbers; every eighth element a special one.
inline std::vector<std::byte> any_addend(Element element, int64_t count, uint64_t seed) {
  std::vector<std::byte> bytes = random_bytes(count * bytes_of(element), seed);
  std::mt19937_64 random(seed);
  with_type(element, [&](auto like) {
    using T = decltype(like);
    if constexpr (std::floating_point<T>) {
      using Limits = std::numeric_limits<T>;
      constexpr std::array<T, 8> kSpecial = {Limits::quiet_NaN(),
                                             -Limits::quiet_NaN(),
                                             Limits::infinity(),
                                             -Limits::infinity(),
                                             Limits::denorm_min(),
                                             Limits::max(),
                                             T{0},
                                             -T{0}};
      for (int64_t i = 0; i < count; i += 8) {
        std::memcpy(bytes.data() + i * static_cast<int64_t>(sizeof(T)), &kSpecial[random() % 8], sizeof(T));
      }
    }
  });
  return bytes;
}

}  // namespace shardway::shm::testing
