// What only a trial can tell: what becomes of lines that were read.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "shm/group/group.h"

namespace shardway::shm {
namespace {

constexpr int kTurns = 5;

template <class Call>
int64_t time_of(Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return (std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void Group::choose_ways(const std::optional<Ways>& given) {
  Ways& ways = desk_.ways;
  ways = given.value_or(Ways{});
  ways.inline_bytes = std::min(ways.inline_bytes, kInlineBytes);
  const bool swaps = std::exchange(ways.swaps, false);
  ways.shuttles &= size() == 2;
  ways.swaps = swaps && ways.shuttles;
  if (ways.swaps) barrier();  // the next payload may lie where a peer still reads the last one of before
  if (given || size() == 1) return;
  if (!desk_.waiting->spins()) {  // ranks that take turns on a core: no trials
    ways.hands_back = true;
    return;
  }
  if (ways.shuttles) tune_swapping();
  tune_handing_back();
}

// The numbers of all ranks, by rank.
std::vector<int64_t> Group::numbers_of_all(int64_t mine) {
  std::vector<int64_t> all(static_cast<size_t>(size()));
  gather_notes(std::as_bytes(std::span(&mine, 1)),
               {.data = reinterpret_cast<std::byte*>(all.data()), .row_bytes = sizeof(mine)});
  return all;
}

// A collective of `bytes` from each rank to each that `sends`, with and without a way, by turns: ranks that
// are just starting share their cores with whatever starts beside them. At its best: other work only ever
// adds to a time.
Group::Trial Group::try_with_and_without(const Sends& sends, int64_t bytes, int64_t calls,
                                         const std::function<void(bool)>& set) {
  const auto inline_bytes = std::exchange(desk_.ways.inline_bytes, 0);
  const std::vector<std::byte> mine(static_cast<size_t>(bytes));
  std::vector<std::byte> theirs(static_cast<size_t>(bytes * size()));
  Flat flat{.input = mine.data(), .input_bytes = bytes, .output = theirs.data()};
  for (int64_t peer = 0; peer < size(); ++peer) {
    flat.sends.push_back({.bytes = sends(rank(), peer) ? bytes : 0});
    flat.takes.push_back({.to = peer * bytes, .bytes = sends(peer, rank()) ? bytes : 0});
  }
  const auto several = [&] {
    for (int64_t call = 0; call < calls; ++call) run(flat);
  };
  Trial trial;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const bool with : {false, true}) {
      set(with);
      several();
      int64_t& best = with ? trial.with : trial.without;
      best = std::min(best, time_of(several));
    }
  }
  desk_.ways.inline_bytes = inline_bytes;
  return trial;
}

// The same on every rank.
bool Group::is_faster_than(int64_t time, int64_t limit) {
  int64_t gain = 0;
  for (const int64_t of_rank : numbers_of_all(limit - time)) gain += of_rank;
  return gain >= 0;
}

// Two ranks that swap gain more in programs, where other work is done between two calls, than in a trial.
void Group::tune_swapping() {
  const auto to_the_other = [](int64_t from, int64_t to) { return from != to; };
  const Trial trial = try_with_and_without(to_the_other, slot_bytes(size()), slots_of(size()),
                                           [this](bool with) { desk_.ways.swaps = with; });
  desk_.ways.swaps &= is_faster_than(trial.with, trial.without * 5 / 4);
}

// Around the rings, one way.
void Group::tune_handing_back() {
  const auto to_the_next = [this](int64_t from, int64_t to) {
    return to == (from + 1) % size() && (size() > 2 || from == 0);
  };
  const Trial trial = try_with_and_without(to_the_next, slot_bytes(size()), slots_of(size()),
                                           [this](bool with) { desk_.ways.hands_back = with; });
  desk_.ways.hands_back &= is_faster_than(trial.with, trial.without);
}

}  // namespace shardway::shm
