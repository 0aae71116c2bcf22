// Compiled for AVX2 and F16C. Includes nothing of the standard library but types: see vectors.h.
#ifdef __x86_64__
#include <immintrin.h>

#include "shm/kernels/copy_loops.h"
#include "shm/kernels/kernels.h"
#include "shm/kernels/reduce_table.h"

namespace shardway::shm {
namespace {

struct HalfWords {
  using U16 = Vector<uint16_t, 16>;
  using U32 = Vector<uint32_t, 32>;

  static SHARDWAY_INLINE U32 widen(U16 half) {
    return bits_as<U32>(_mm256_cvtepu16_epi32(bits_as<__m128i>(half)));
  }
  static SHARDWAY_INLINE U16 narrow(U32 word) {
    const auto v = bits_as<__m256i>(word);
    return bits_as<U16>(_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
  }
};

struct F16InHardware {
  using F32 = Vector<float, 32>;
  using U32 = Vector<uint32_t, 32>;
  using U16 = Vector<uint16_t, 16>;
  static constexpr int kToNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

  static SHARDWAY_INLINE F32 widen(U16 half) { return bits_as<F32>(_mm256_cvtph_ps(bits_as<__m128i>(half))); }

  // The instruction would keep a NaN's payload; the portable loops do not.
  static SHARDWAY_INLINE U16 narrow(F32 value) {
    const U32 bits = bits_as<U32>(value);
    const U32 quiet = value != value ? (bits & 0x80000000U) | 0x7FC00000U : bits;
    return bits_as<U16>(_mm256_cvtps_ph(bits_as<__m256>(quiet), kToNearest));
  }
};

struct Avx2 {
  static constexpr int kBytes = 32;
  using Words = HalfWords;
  using F16 = F16InHardware;
  using V = Vector<uint64_t, kBytes>;

  static SHARDWAY_INLINE void stream(std::byte* to, V v) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), bits_as<__m256i>(v));
  }
  static SHARDWAY_INLINE void fence() { _mm_sfence(); }
};

}  // namespace

constexpr Kernels kAvx2Kernels = {.copy = copy_loop<Avx2>,
                                  .stream = stream_loop<Avx2>,
                                  .copy_twice = copy_twice_loop<Avx2>,
                                  .copy_rows = copy_rows_loop<Avx2>,
                                  .copy_tile = copy_tile_loop<Avx2>,
                                  .reduce_loop = reduce_loop<Avx2>};

}  // namespace shardway::shm
#endif
