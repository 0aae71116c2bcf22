// The calls that a calibration repeats.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shardway/plan.h"

namespace shardway {

// How a call splits its elements among ranks.
enum class Portions : uint8_t {
  even,
  rising,       // as 0 : 1 : 2 : …
  leaning,      // as 3 : 3 : … : 2 : 2, the larger ones first
  alternating,  // as 3 : 1 : 3 : 1 : …
};
inline constexpr Portions kPortions[] = {Portions::even, Portions::rising, Portions::leaning,
                                         Portions::alternating};

[[gnu::visibility("default")]] const char* name_of(Portions parts);

// The elements of each rank; together `count`.
[[gnu::visibility("default")]] std::vector<int64_t> sizes_of(Portions parts, int64_t count, int64_t ranks);

// The kinds of steps that have prices of their own.
inline constexpr StepKind kMeasuredKinds[] = {StepKind::all_gather, StepKind::reduce_scatter,
                                              StepKind::all_reduce, StepKind::all_to_all, StepKind::permute};

// The choices of a group in shared memory: docs/backend.md explains them under Tuning.
struct MemoryChoices {
  bool swap = false;
  bool hand_back = false;

  bool operator==(const MemoryChoices&) const = default;
};

inline constexpr int64_t kTrialItemBytes = 4;  // all calls move f32

// One call that is repeated. `bytes` is what a rank gathers, reduces, exchanges or sends, in the mean over
// ranks where parts are not even. An exchange turns even parts into others.
struct Trial {
  StepKind kind = StepKind::all_gather;
  int64_t bytes = 0;
  Portions parts = Portions::even;
  bool is_held_out = false;
  std::optional<MemoryChoices> choices = {};  // by which its group is tuned; without: by its own
};

// For the fit: every kind at sizes that double from the least to the most, and exchanges to leaning parts, in
// which ranks keep most; and at every second size rising parts. Held out of it: sizes between those, and
// alternating parts.
[[gnu::visibility("default")]] std::vector<Trial> trials_between(int64_t least_bytes, int64_t most_bytes);

// For the choices of shared memory: calls that run into them, in groups tuned in all ways that there are
// among so many ranks. Only two ranks swap.
std::vector<Trial> trials_of_choices(int64_t ranks);

// How often a trial is made before it is the next one's turn, beside a first time that does not count. Few:
// what slows a machine down for a moment slows a whole turn, so turns tell more than repetitions.
inline constexpr size_t kRepetitionsInATurn = 2;

}  // namespace shardway
