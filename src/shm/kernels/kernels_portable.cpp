// Sixteen bytes at a time, which the compiler maps to what every machine of the architecture has.
#include <bit>

#include "shm/kernels/copy_loops.h"
#include "shm/kernels/kernels.h"
#include "shm/kernels/reduce_table.h"

namespace shardway::shm {
namespace {

// Works on pairs of lanes, because the compiler converts and shuffles narrow lanes one by one.
struct HalfWords {
  using U16 = Vector<uint16_t, 8>;
  using U32 = Vector<uint32_t, 16>;
  using U64 = Vector<uint64_t, 16>;
  using Eight = Vector<uint16_t, 16>;
  static_assert(std::endian::native == std::endian::little);

  static SHARDWAY_INLINE U32 widen(U16 half) {
    const auto wide = bits_as<Eight>(U64{bits_as<uint64_t>(half), 0});
    return bits_as<U32>(__builtin_shufflevector(wide, Eight{}, 0, 8, 1, 9, 2, 10, 3, 11));
  }
  static SHARDWAY_INLINE U16 narrow(U32 word) {
    const auto pairs = bits_as<U64>(word);
    const U64 joined = (pairs | (pairs >> 16)) & 0xFFFFFFFFU;
    return bits_as<U16>(joined[0] | (joined[1] << 32));
  }
};

struct Portable {
  static constexpr int kBytes = 16;
  using Words = HalfWords;
  using F16 = F16InIntegers<HalfWords>;
  using V = Vector<uint64_t, kBytes>;

  static void stream(std::byte* to, V v) { store(to, v); }
  static void fence() {}
};

}  // namespace

constexpr Kernels kPortableKernels = {.copy = copy_loop<Portable>,
                                      .stream = stream_loop<Portable>,
                                      .copy_twice = copy_twice_loop<Portable>,
                                      .copy_rows = copy_rows_loop<Portable>,
                                      .copy_tile = copy_tile_loop<Portable>,
                                      .reduce_loop = reduce_loop<Portable>};

}  // namespace shardway::shm
