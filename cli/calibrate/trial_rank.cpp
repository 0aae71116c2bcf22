#include "cli/calibrate/trial_rank.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "shardway/shm.h"

namespace shardway::cli {
namespace {

using RankClock = std::chrono::steady_clock;  // one clock for all processes of a machine

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(RankClock::now().time_since_epoch()).count();
}

// What rank `from` sends to each rank when parts of `before` become parts of `after`.
std::vector<int64_t> overlaps_of(size_t from, const std::vector<int64_t>& before,
                                 const std::vector<int64_t>& after) {
  const auto begin_of = [](const std::vector<int64_t>& sizes, size_t rank) {
    return std::accumulate(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(rank), int64_t{0});
  };
  const int64_t begin = begin_of(before, from);
  std::vector<int64_t> sizes;
  for (size_t to = 0; to < after.size(); ++to) {
    const int64_t there = begin_of(after, to);
    sizes.push_back(
        std::max<int64_t>(0, std::min(begin + before[from], there + after[to]) - std::max(begin, there)));
  }
  return sizes;
}

// NOLINTBEGIN(concurrency-mt-unsafe): this process has one thread
void set_tuning(const std::string& text) { setenv("SHARDWAY_TUNING", text.c_str(), 1); }

void take_place(int64_t rank, const std::string& job, const TrialLimits& limits) {
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(limits.ranks).c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", std::to_string(limits.ranks).c_str(), 1);
  setenv("SHARDWAY_JOB", job.c_str(), 1);
  setenv("SHARDWAY_QUIET", "1", 1);
  if (!limits.tuning.empty()) set_tuning(limits.tuning);
}
// NOLINTEND(concurrency-mt-unsafe)

class TrialRank {
 public:
  TrialRank(const std::vector<Trial>& trials, const TrialLimits& limits, const TrialBoard& board,
            HostGroup group)
      : trials_(trials), limits_(limits), board_(board), group_(std::move(group)) {
    int64_t most = 0;
    for (const Trial& trial : trials) most = std::max(most, trial.bytes);
    const auto elements = static_cast<size_t>(most) / sizeof(float) + static_cast<size_t>(limits.ranks);
    input_.assign(elements, 1);
    output_.assign(2 * elements, 0);  // no part is more than twice the mean
    for (const Trial& trial : trials) groups_.push_back(group_for(trial));
  }

  void run() {
    for (size_t i = 0; i < trials_.size(); ++i) time(i);  // the first time touches memory: it does not count
    begin_ = RankClock::now();
    if (group_.rank() == 0) board_.words().begun_ns.store(now_ns(), std::memory_order_relaxed);
    for (int64_t round = 0;; ++round) {
      for (size_t i = 0; i < trials_.size(); ++i) {
        if (!agree_to_go_on(round, i)) return;
        time(i);  // it finds in the caches what the trial before has left: it does not count
        for (size_t k = 0; k < kRepetitionsInATurn; ++k) {
          const double us = time(i);
          if (group_.rank() == 0) board_.add(i, us);
        }
        if (group_.rank() == 0) board_.words().trials_made.fetch_add(1, std::memory_order_relaxed);
      }
    }
  }

 private:
  // Rank 0 decides. The word is not written again before every rank has read it: a trial has barriers.
  bool agree_to_go_on(int64_t round, size_t trial) {
    std::atomic<bool>& goes_on = board_.words().goes_on;
    if (group_.rank() == 0) goes_on.store(!has_enough(round, trial), std::memory_order_relaxed);
    group_.barrier();
    return goes_on.load(std::memory_order_relaxed);
  }

  bool has_enough(int64_t round, size_t trial) const {
    if (board_.words().must_stop.load(std::memory_order_relaxed)) return true;
    if (round == 0) return false;
    if (RankClock::now() - begin_ >= limits_.time) return true;
    if (trial != 0 || limits_.takes_whole_time) return false;
    TrialTimes us;
    for (size_t i = 0; i < trials_.size(); ++i) us.push_back(board_.repetitions_of(i));
    return is_known_well(us, round);
  }

  // From the first rank's start to the last rank's end; rank 0 is told.
  double time(size_t index) {
    const Trial& trial = trials_[index];
    const int64_t elements = trial.bytes / kTrialItemBytes;
    std::fill(input_.begin(), input_.begin() + elements, static_cast<float>(++calls_ % 1024));
    group_.barrier();
    const int64_t begin_ns = now_ns();
    call(groups_[index], trial, elements);
    const int64_t end_ns = now_ns();
    board_.stamps()[static_cast<size_t>(group_.rank())] = {.begin_ns = begin_ns, .end_ns = end_ns};
    group_.barrier();
    if (group_.rank() != 0) return 0;
    int64_t first = std::numeric_limits<int64_t>::max();
    int64_t last = 0;
    for (const RankStamps& stamps : board_.stamps()) {
      first = std::min(first, stamps.begin_ns);
      last = std::max(last, stamps.end_ns);
    }
    return static_cast<double>(last - first) / 1e3;
  }

  // A group that is tuned as the trial wants it; trials that want the same have it together.
  HostGroup group_for(const Trial& trial) {
    if (!trial.choices) return group_;
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (trials_[i].choices == trial.choices) return groups_[i];
    }
    set_tuning("swap=" + std::to_string(int{trial.choices->swap}) +
               ",hand_back=" + std::to_string(int{trial.choices->hand_back}));
    return group_.split(0);
  }

  void call(const HostGroup& group, const Trial& trial, int64_t elements) {
    const std::vector<int64_t> parts = sizes_of(trial.parts, elements, group.size());
    const int64_t own = parts[static_cast<size_t>(group.rank())];
    const std::span<const float> input(input_);
    const std::span<float> output(output_);
    const auto count = static_cast<size_t>(elements);
    const auto part = static_cast<size_t>(own);
    switch (trial.kind) {
      case StepKind::all_gather:
        return group.all_gather_v<float>(input.first(part), output.first(count), parts);
      case StepKind::reduce_scatter:
        return group.reduce_scatter_v<float>(input.first(count), output.first(part), parts);
      case StepKind::all_reduce:
        return group.all_reduce<float>(input.first(count), output.first(count));
      case StepKind::all_to_all: {
        const std::vector<int64_t> received(parts.size(), own);
        return group.all_to_all_v<float>(input.first(count), parts, output.first(part * received.size()),
                                         received);
      }
      case StepKind::exchange:
        return change_parts(trial.parts, elements);
      default:
        return send_to_next(elements);
    }
  }

  // Every rank has `elements` before.
  void change_parts(Portions parts, int64_t elements) {
    const int64_t whole = elements * group_.size();
    const std::vector<int64_t> before = sizes_of(Portions::even, whole, group_.size());
    const std::vector<int64_t> after = sizes_of(parts, whole, group_.size());
    const auto rank = static_cast<size_t>(group_.rank());
    group_.all_to_all_v<float>(
        std::span<const float>(input_).first(static_cast<size_t>(elements)), overlaps_of(rank, before, after),
        std::span<float>(output_).first(static_cast<size_t>(after[rank])), overlaps_of(rank, after, before));
  }

  void send_to_next(int64_t elements) {
    const int64_t ranks = group_.size();
    std::vector<int64_t> sent(static_cast<size_t>(ranks), 0);
    std::vector<int64_t> received(static_cast<size_t>(ranks), 0);
    sent[static_cast<size_t>((group_.rank() + 1) % ranks)] = elements;
    received[static_cast<size_t>((group_.rank() + ranks - 1) % ranks)] = elements;
    const auto count = static_cast<size_t>(elements);
    group_.all_to_all_v<float>(std::span<const float>(input_).first(count), sent,
                               std::span<float>(output_).first(count), received);
  }

  const std::vector<Trial>& trials_;
  const TrialLimits& limits_;
  const TrialBoard& board_;
  HostGroup group_;
  std::vector<HostGroup> groups_;  // [trial]
  std::vector<float> input_;
  std::vector<float> output_;
  int64_t calls_ = 0;
  RankClock::time_point begin_;
};

}  // namespace

void be_trial_rank(int64_t rank, const std::string& job, const std::vector<Trial>& trials,
                   const TrialLimits& limits, const TrialBoard& board) {
  constexpr auto kPatience = std::chrono::minutes(2);
  try {
    take_place(rank, job, limits);
    TrialRank(trials, limits, board, HostGroup::join({.timeout = kPatience})).run();
    _exit(0);
  } catch (const std::exception& error) {
    int64_t nobody = -1;
    if (board.words().failed_rank.compare_exchange_strong(nobody, rank))
      std::snprintf(board.words().why.data(), board.words().why.size(), "%s", error.what());
    _exit(1);
  }
}

}  // namespace shardway::cli
