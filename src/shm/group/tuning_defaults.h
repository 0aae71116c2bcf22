// The recorded defaults: what is faster on which processor, with the figure that says so. Figures are from
// docs/decisions, of these machines: "EPYC", a guest of two Zen 4 cores; "Xeon", one of 16 cores.
#pragma once

#include <array>

#include "shm/memory/processor.h"

namespace shardway::shm {

struct TuningDefault {
  Processor processor;
  bool shares_cache;  // whether all cores of all ranks share their last cache
  bool swaps;
  bool hands_back;
};

// For what was not measured: the choice that loses least. Where handing back is wrong, it costs a quarter
// (Xeon). Where it is missing, a call takes three times as long (EPYC, 138 us instead of 40 to 54). Where
// swapping is right, it halves the time (EPYC, 20 us instead of 40); no machine is on record on which it is
// wrong.
inline constexpr TuningDefault kSafeDefault{
    .processor = Processor::unknown, .shares_cache = false, .swaps = true, .hands_back = true};

inline constexpr std::array kTuningDefaults = {
    // EPYC, 2 ranks (0006). Swapped, a gather of 64 KiB takes 4.2 us instead of 5.3, of 256 KiB 17 instead of
    // 21.7. Handed back, 64 KiB are written and read in 3.7 us instead of 8.5.
    TuningDefault{.processor = Processor::amd_zen, .shares_cache = true, .swaps = true, .hands_back = true},
    // EPYC, 2 ranks (0006, 0015). Swapped, calls between which a program works take 20 us instead of 40.
    // Handed back, a gather of 256 KiB takes 40 to 54 us instead of 138, an all-reduce of 1 MiB 123 instead
    // of 490.
    TuningDefault{.processor = Processor::amd_zen, .shares_cache = false, .swaps = true, .hands_back = true},
    // Xeon (0006). Handing back makes calls 24 % slower between 2 ranks, 7 to 10 % among 8. Swapping was not
    // measured by itself: it is on, as in kSafeDefault.
    TuningDefault{.processor = Processor::intel, .shares_cache = true, .swaps = true, .hands_back = false},
    // Not measured between sockets: the same as for the one Xeon that was measured.
    TuningDefault{.processor = Processor::intel, .shares_cache = false, .swaps = true, .hands_back = false},
    // Arm has no entry yet: nobody has measured it.
};

constexpr TuningDefault default_for(Processor processor, bool shares_cache) {
  for (const TuningDefault& entry : kTuningDefaults) {
    if (entry.processor == processor && entry.shares_cache == shares_cache) return entry;
  }
  return kSafeDefault;
}

}  // namespace shardway::shm
