#include "shm/group/tune.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>

#include "shardway/shm.h"
#include "shm/group/tuning_defaults.h"
#include "shm/memory/fork_mutex.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

// How the groups of this process were tuned: one entry per way, with the number of groups.
class TuningRecord {
 public:
  static TuningRecord& instance() {
    static auto* record = new TuningRecord;  // never destroyed: groups may be made until the end of main
    return *record;
  }

  void add(const TunedGroups& made) {
    const std::lock_guard lock(mutex_);
    forget_parents();
    for (TunedGroups& seen : all_) {
      TunedGroups alike = made;
      alike.groups = seen.groups;
      if (alike != seen) continue;
      ++seen.groups;
      return;
    }
    all_.push_back(made);
  }

  std::vector<TunedGroups> all() {
    const std::lock_guard lock(mutex_);
    forget_parents();
    return all_;
  }

 private:
  // What a child of fork inherits is not its own.
  void forget_parents() {
    if (generation_ != fork_generation()) all_.clear();
    generation_ = fork_generation();
  }

  ForkMutex mutex_;
  std::vector<TunedGroups> all_;
  uint64_t generation_ = fork_generation();
};

[[maybe_unused]] const TuningRecord& tuning_at_load = TuningRecord::instance();

// A choice, and where it comes from.
struct Chosen {
  bool is_on = false;
  std::string from = {};
};

class Tuner {
 public:
  Tuner(const std::optional<Tuning>& given, const std::vector<Hello>& hellos, bool every_rank_has_a_core)
      : given_(given),
        pins_(hellos.front().pins),
        measured_(hellos.front().measured),
        processor_(hellos.front().processor),
        every_rank_has_a_core_(every_rank_has_a_core) {
    std::vector<cpu_set_t> cores;
    cores.reserve(hellos.size());
    for (const Hello& hello : hellos) cores.push_back(hello.cores);
    shares_cache_ = share_cache(cores, hellos.front().cores_at_cache);
  }

  Tuning tuning(int64_t ranks) const {
    const TuningDefault record = default_for(processor_, shares_cache_);
    const Tuning given = given_.value_or(Tuning{});
    const bool are_two = ranks == 2 && given.shuttles;
    // Ranks that take turns on a core hand back: with 4 ranks on 2 cores and 64 MiB from one of them, every
    // run takes 17 ms, and without handing back up to 40 (decision 6).
    const Chosen swap = are_two ? chosen(given.swaps, &TuningPins::swap, false, record.swaps)
                                : Chosen{.is_on = false, .from = "only two ranks swap"};
    const Chosen hand_back = chosen(given.hands_back, &TuningPins::hand_back, true, record.hands_back);
    TuningRecord::instance().add({.ranks = ranks,
                                  .processor = name_of(processor_),
                                  .shares_cache = shares_cache_,
                                  .swap = swap.is_on,
                                  .swap_from = swap.from,
                                  .hand_back = hand_back.is_on,
                                  .hand_back_from = hand_back.from});
    return {.inline_bytes = std::min(given.inline_bytes, inline_bytes(ranks, every_rank_has_a_core_)),
            .shuttles = are_two,
            .swaps = swap.is_on,
            .hands_back = hand_back.is_on};
  }

 private:
  Chosen chosen(bool given, int8_t TuningPins::*choice, bool on_shared_cores, bool by_record) const {
    if (given_) return {.is_on = given, .from = "the caller"};
    if (is_pinned(pins_.*choice)) return {.is_on = pins_.*choice == 1, .from = "SHARDWAY_TUNING"};
    if (!every_rank_has_a_core_)
      return {.is_on = on_shared_cores, .from = "default for ranks that share cores"};
    if (is_pinned(measured_.*choice)) return {.is_on = measured_.*choice == 1, .from = "the topology file"};
    return {.is_on = by_record,
            .from = std::string("default for ") + name_of(processor_) +
                    (shares_cache_ ? " with a common cache" : " without a common cache")};
  }

  const std::optional<Tuning>& given_;
  TuningPins pins_;
  TuningPins measured_;
  Processor processor_;
  bool every_rank_has_a_core_;
  bool shares_cache_ = false;
};

// Set before main begins, and so made by no constructor.
constinit MeasuredPins measured_by = nullptr;

}  // namespace

void ask_for_measured_pins(MeasuredPins measured) { measured_by = measured; }

TuningPins measured_pins(int64_t ranks) { return measured_by == nullptr ? TuningPins{} : measured_by(ranks); }

Tuning tune(const GroupOptions& options, const std::vector<Hello>& hellos, bool every_rank_has_a_core) {
  if (options.size == 1) return {.shuttles = false};
  return Tuner(options.tuning, hellos, every_rank_has_a_core).tuning(options.size);
}

}  // namespace shardway::shm

namespace shardway {

TuningStats tuning_stats() {
  return {.processor = shm::name_of(shm::this_processor()), .groups = shm::TuningRecord::instance().all()};
}

}  // namespace shardway
