// The combination of addends in one pass over memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardway::shm {

enum class Element : uint8_t {
  boolean,
  u8,
  u16,
  u32,
  u64,
  i8,
  i16,
  i32,
  i64,
  f16,
  bf16,
  f32,
  f64,
  complex64,
  complex128
};

enum class Reduction : uint8_t { sum, min, max, product, band, bor, bxor };

int64_t bytes_of(Element element);

// Whether the reduction is defined: complex numbers have no order, and only integers and booleans have bits.
bool is_defined(Element element, Reduction op);

// What happens to the addends: each is multiplied by `factor` (in a sum only), they are combined, and the
// result is divided by `divisor`. Integers and booleans are not divided.
struct Combine {
  Element element = Element::f32;
  Reduction op = Reduction::sum;
  int64_t divisor = 1;
  double factor = 1;
};

// Combines the addends, of which there is at least one, in their order and writes the result to `to`. f16 and
// bf16 accumulate in f32 and round once, at the end. A NaN among the addends of min and max stays. The bits
// of the result depend on nothing else: not on the instruction set, the alignment or how a range is cut. `to`
// may be one of the addends itself; otherwise it overlaps none. Throws std::invalid_argument if the reduction
// is not defined. A large result goes past the cache; so does a piece of one, if `whole_bytes` gives the
// bytes of the whole.
void reduce(std::byte* to, std::span<const std::byte* const> addends, int64_t count, const Combine& how,
            int64_t whole_bytes = 0);

// Elements of an addend somewhere in memory; strides in bytes, at least 0, one per dim.
struct StridedAddend {
  const std::byte* data = nullptr;
  std::span<const int64_t> strides = {};
};

// Like reduce, for boxes: every addend and the output have this extent, each with its own strides.
void reduce_box(std::byte* to, std::span<const int64_t> to_strides, std::span<const StridedAddend> addends,
                std::span<const int64_t> extent, const Combine& how, int64_t whole_bytes = 0);

}  // namespace shardway::shm
