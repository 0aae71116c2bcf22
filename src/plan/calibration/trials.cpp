#include "plan/calibration/trials.h"

#include <numeric>

namespace shardway {
namespace {

int64_t weight_of(Portions parts, int64_t rank, int64_t ranks) {
  switch (parts) {
    case Portions::even:
      return 1;
    case Portions::rising:
      return rank;
    case Portions::leaning:
      return 2 * rank < ranks ? 3 : 2;
    default:
      return rank % 2 == 0 ? 3 : 1;
  }
}

}  // namespace

const char* name_of(Portions parts) {
  switch (parts) {
    case Portions::even:
      return "even";
    case Portions::rising:
      return "rising";
    case Portions::leaning:
      return "leaning";
    default:
      return "alternating";
  }
}

std::vector<int64_t> sizes_of(Portions parts, int64_t count, int64_t ranks) {
  std::vector<int64_t> weights;
  for (int64_t rank = 0; rank < ranks; ++rank) weights.push_back(weight_of(parts, rank, ranks));
  const int64_t whole = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  std::vector<int64_t> sizes;
  int64_t weight = 0;
  int64_t given = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    weight += weights[static_cast<size_t>(rank)];
    const int64_t until = count * weight / whole;
    sizes.push_back(until - given);
    given = until;
  }
  return sizes;
}

std::vector<Trial> trials_between(int64_t least_bytes, int64_t most_bytes) {
  constexpr StepKind kWithParts[] = {StepKind::all_gather, StepKind::reduce_scatter, StepKind::all_to_all,
                                     StepKind::exchange};
  std::vector<Trial> trials;
  bool is_second = false;
  for (int64_t bytes = least_bytes; bytes <= most_bytes; bytes *= 2, is_second = !is_second) {
    for (const StepKind kind : kMeasuredKinds) {
      trials.push_back({.kind = kind, .bytes = bytes});
      if (is_second && 3 * bytes / 2 <= most_bytes)
        trials.push_back({.kind = kind, .bytes = 3 * bytes / 2, .is_held_out = true});
    }
    const Portions parts = is_second ? Portions::alternating : Portions::rising;
    for (const StepKind kind : kWithParts)
      trials.push_back({.kind = kind, .bytes = bytes, .parts = parts, .is_held_out = is_second});
    trials.push_back({.kind = StepKind::exchange, .bytes = bytes, .parts = Portions::leaning});
  }
  return trials;
}

std::vector<Trial> trials_of_choices(int64_t ranks) {
  constexpr StepKind kKinds[] = {StepKind::all_gather, StepKind::reduce_scatter, StepKind::all_reduce,
                                 StepKind::all_to_all};
  constexpr int64_t kSizes[] = {16 << 10, 128 << 10, 512 << 10};  // beside the header, and through rings
  std::vector<MemoryChoices> ways = {{}, {.hand_back = true}};
  if (ranks == 2) ways.insert(ways.end(), {{.swap = true}, {.swap = true, .hand_back = true}});
  std::vector<Trial> trials;
  for (const int64_t bytes : kSizes) {
    for (const StepKind kind : kKinds) {
      for (const MemoryChoices& way : ways) trials.push_back({.kind = kind, .bytes = bytes, .choices = way});
    }
  }
  return trials;
}

}  // namespace shardway
