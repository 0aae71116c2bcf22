// Compiled for 64-bit Arm, all of which has NEON. Includes nothing of the standard library but types: see
// vectors.h.
#ifdef __aarch64__
#include <arm_neon.h>

#include "shm/kernels/copy_loops.h"
#include "shm/kernels/kernels.h"
#include "shm/kernels/reduce_table.h"

namespace shardway::shm {
namespace {

struct HalfWords {
  using U16 = Vector<uint16_t, 8>;
  using U32 = Vector<uint32_t, 16>;

  static SHARDWAY_INLINE U32 widen(U16 half) { return bits_as<U32>(vmovl_u16(bits_as<uint16x4_t>(half))); }
  static SHARDWAY_INLINE U16 narrow(U32 word) { return bits_as<U16>(vmovn_u32(bits_as<uint32x4_t>(word))); }
};

struct F16InHardware {
  using F32 = Vector<float, 16>;
  using U32 = Vector<uint32_t, 16>;
  using U16 = Vector<uint16_t, 8>;

  static SHARDWAY_INLINE F32 widen(U16 half) {
    return bits_as<F32>(vcvt_f32_f16(bits_as<float16x4_t>(half)));
  }

  // The instruction would keep a NaN's payload; the portable loops do not.
  static SHARDWAY_INLINE U16 narrow(F32 value) {
    const U32 bits = bits_as<U32>(value);
    const U32 quiet = value != value ? (bits & 0x80000000U) | 0x7FC00000U : bits;
    return bits_as<U16>(vcvt_f16_f32(bits_as<float32x4_t>(quiet)));
  }
};

struct Neon {
  static constexpr int kBytes = 16;
  using Words = HalfWords;
  using F16 = F16InHardware;
  using V = Vector<uint64_t, kBytes>;

  // On Arm, stores past the cache are only a hint and store pairs of registers. They were not measured, so
  // they are not used.
  static SHARDWAY_INLINE void stream(std::byte* to, V v) { store(to, v); }
  static SHARDWAY_INLINE void fence() {}
};

}  // namespace

constexpr Kernels kNeonKernels = {.copy = copy_loop<Neon>,
                                  .stream = stream_loop<Neon>,
                                  .copy_twice = copy_twice_loop<Neon>,
                                  .copy_rows = copy_rows_loop<Neon>,
                                  .copy_tile = copy_tile_loop<Neon>,
                                  .reduce_loop = reduce_loop<Neon>};

}  // namespace shardway::shm
#endif
