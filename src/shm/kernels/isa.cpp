#include "shm/kernels/isa.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <stdexcept>
#include <string>

#include "shm/kernels/kernels.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace shardway::shm {
namespace {

constexpr std::array<const char*, kEveryIsa.size()> kNames = {"portable", "AVX2", "AVX-512", "NEON"};

#ifdef __x86_64__
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_avx2() { return __builtin_cpu_supports("avx2") != 0 && has_f16c(); }

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}
#endif

const Kernels* kernels_for(Isa isa) {
  switch (isa) {
#ifdef __x86_64__
    case Isa::avx2:
      return has_avx2() ? &kAvx2Kernels : nullptr;
    case Isa::avx512:
      return has_avx2() && has_avx512() ? &kAvx512Kernels : nullptr;
#elif defined(__aarch64__)
    case Isa::neon:
      return &kNeonKernels;  // every such machine has it
#endif
    case Isa::portable:
      return &kPortableKernels;
    default:
      return nullptr;
  }
}

const Kernels& widest() {
  static const Kernels* const found = [] {
#ifndef __SANITIZE_THREAD__  // the thread sanitizer does not see stores past the cache
    for (const Isa isa : {Isa::neon, Isa::avx512, Isa::avx2}) {
      if (const Kernels* kernels = kernels_for(isa)) return kernels;
    }
#endif
    return &kPortableKernels;
  }();
  return *found;
}

// Pairs with nothing: whoever forces a set does so before running the loops that use it.
std::atomic<const Kernels*> forced = nullptr;

}  // namespace

bool supports(Isa isa) { return kernels_for(isa) != nullptr; }

Isa current_isa() {
  const Kernels* current = &current_kernels();
  return *std::find_if(kEveryIsa.begin(), kEveryIsa.end(),
                       [&](Isa isa) { return kernels_for(isa) == current; });
}

void force_isa(Isa isa) {
  const Kernels* kernels = kernels_for(isa);
  if (kernels == nullptr) {
    throw std::invalid_argument(std::string("force_isa: this machine does not run ") +
                                kNames.at(static_cast<size_t>(isa)));
  }
  forced.store(kernels, std::memory_order_relaxed);
}

const Kernels& current_kernels() {
  const Kernels* kernels = forced.load(std::memory_order_relaxed);
  return kernels != nullptr ? *kernels : widest();
}

}  // namespace shardway::shm
