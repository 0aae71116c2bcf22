// Compiled for AVX-512 F, BW, DQ and VL. Includes nothing of the standard library but types: see vectors.h.
#ifdef __x86_64__
#include <immintrin.h>

#include "shm/kernels/copy_loops.h"
#include "shm/kernels/kernels.h"
#include "shm/kernels/reduce_table.h"

namespace shardway::shm {
namespace {

struct HalfWords {
  using U16 = Vector<uint16_t, 32>;
  using U32 = Vector<uint32_t, 64>;
  static constexpr __mmask16 kAllLanes = 0xFFFF;

  static SHARDWAY_INLINE U32 widen(U16 half) {
    return bits_as<U32>(_mm512_maskz_cvtepu16_epi32(kAllLanes, bits_as<__m256i>(half)));
  }
  static SHARDWAY_INLINE U16 narrow(U32 word) {
    return bits_as<U16>(_mm512_maskz_cvtepi32_epi16(kAllLanes, bits_as<__m512i>(word)));
  }
};

struct F16InHardware {
  using F32 = Vector<float, 64>;
  using U32 = Vector<uint32_t, 64>;
  using U16 = Vector<uint16_t, 32>;
  static constexpr int kToNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  static constexpr __mmask16 kAllLanes = 0xFFFF;

  static SHARDWAY_INLINE F32 widen(U16 half) {
    return bits_as<F32>(_mm512_maskz_cvtph_ps(kAllLanes, bits_as<__m256i>(half)));
  }

  // The instruction would keep a NaN's payload; the portable loops do not.
  static SHARDWAY_INLINE U16 narrow(F32 value) {
    const U32 bits = bits_as<U32>(value);
    const U32 quiet = value != value ? (bits & 0x80000000U) | 0x7FC00000U : bits;
    return bits_as<U16>(_mm512_maskz_cvtps_ph(kAllLanes, bits_as<__m512>(quiet), kToNearest));
  }
};

struct Avx512 {
  static constexpr int kBytes = 64;
  using Words = HalfWords;
  using F16 = F16InHardware;
  using V = Vector<uint64_t, kBytes>;

  static SHARDWAY_INLINE void stream(std::byte* to, V v) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bits_as<__m512i>(v));
  }
  static SHARDWAY_INLINE void fence() { _mm_sfence(); }
};

}  // namespace

constexpr Kernels kAvx512Kernels = {.copy = copy_loop<Avx512>,
                                    .stream = stream_loop<Avx512>,
                                    .copy_twice = copy_twice_loop<Avx512>,
                                    .copy_rows = copy_rows_loop<Avx512>,
                                    .copy_tile = copy_tile_loop<Avx512>,
                                    .reduce_loop = reduce_loop<Avx512>};

}  // namespace shardway::shm
#endif
