// What only a trial can tell: what a look into a peer's process costs, and what becomes of lines that were
// read.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "shm/copy.h"
#include "shm/group.h"
#include "shm/vm_read.h"

namespace shardway::shm {
namespace {

constexpr int kTrials = 4;
constexpr int kTurns = 5;

template <class Call>
int64_t time_of(Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return (std::chrono::steady_clock::now() - start).count();
}

// Of a trial at its best: other work on the machine only ever adds to a time.
template <class Call>
int64_t best_time_of(Call&& call) {
  int64_t best = INT64_MAX;
  for (int trial = 0; trial < kTrials; ++trial) best = std::min(best, time_of(call));
  return best;
}

}  // namespace

void Group::choose_ways(const std::optional<Ways>& given) {
  Ways& ways = desk_.ways;
  const bool can_read_processes = ways.can_read_processes;
  ways = given.value_or(Ways{});
  ways.inline_bytes = std::min(ways.inline_bytes, kInlineBytes);
  ways.can_read_processes = can_read_processes;
  if (!can_read_processes) ways.address_from_bytes = INT64_MAX;
  ways.hands_back &= desk_.waiting->may_write();
  ways.shuttles &= size() == 2 && can_all_write();
  if (given || size() == 1 || !desk_.waiting->spins()) return;  // ranks that take turns on a core: no trials
  tune_handing_back();
  if (can_read_processes) tune_address();
}

// The numbers of all ranks, by rank.
std::vector<int64_t> Group::numbers_of_all(int64_t mine) {
  std::vector<int64_t> all(static_cast<size_t>(size()));
  gather_notes(std::as_bytes(std::span(&mine, 1)), reinterpret_cast<std::byte*>(all.data()), sizeof(mine));
  return all;
}

bool Group::can_all_write() {
  const std::vector<int64_t> can = numbers_of_all(desk_.waiting->may_write() ? 1 : 0);
  return std::find(can.begin(), can.end(), 0) == can.end();
}

// Every rank sends a slot to the next, around the rings and again, with and without by turns: ranks that are
// just starting share their cores with whatever starts beside them.
void Group::tune_handing_back() {
  Ways& ways = desk_.ways;
  const auto inline_bytes = std::exchange(ways.inline_bytes, 0);
  const int64_t bytes = slot_bytes(size());
  const std::vector<std::byte> mine(static_cast<size_t>(bytes));
  std::vector<std::byte> theirs(static_cast<size_t>(bytes));
  Flat flat{.input = mine.data(), .input_bytes = bytes, .output = theirs.data()};
  for (int64_t peer = 0; peer < size(); ++peer) {
    flat.sends.push_back({.bytes = peer == (rank() + 1) % size() ? bytes : 0});
    flat.takes.push_back({.bytes = (peer + 1) % size() == rank() ? bytes : 0});
  }
  const auto around = [&] {
    for (int64_t slot = 0; slot < slots_of(size()); ++slot) run(flat);
  };
  int64_t without = INT64_MAX;
  int64_t with = INT64_MAX;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const bool hands_back : {false, true}) {
      ways.hands_back = hands_back && desk_.waiting->may_write();
      around();
      int64_t& best = hands_back ? with : without;
      best = std::min(best, time_of(around));
    }
  }
  // Two ranks that swap gain more in programs, where other work is done between two calls, than in a trial.
  const int64_t bearable = size() == 2 ? without * 5 / 4 : without;
  int64_t loss = 0;  // of all ranks
  for (const int64_t of_rank : numbers_of_all(with - bearable)) loss += of_rank;
  ways.hands_back &= loss <= 0;
  ways.inline_bytes = inline_bytes;
}

// Sets two copies, into a ring of one's own and out of a peer's, against a look at a peer's memory: each by
// itself, so that no rank's time has another's in it. From the least size at which the look is faster on.
void Group::tune_address() {
  const int64_t peer = (rank() + 1) % size();
  const Waiting& waiting = *desk_.waiting;
  const BoardPlan& plan = waiting.own().plan();
  for (const int64_t bytes : {std::min(kLeastAddressBytes, plan.ring_bytes()), plan.ring_bytes()}) {
    std::vector<std::byte> memory(static_cast<size_t>(bytes));
    const auto addresses = numbers_of_all(static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory.data())));
    const auto address = static_cast<uint64_t>(addresses[static_cast<size_t>(peer)]);
    const int64_t staged =
        best_time_of([&] { copy_bytes(waiting.own().slot(peer, 0), memory.data(), bytes); }) +
        best_time_of([&] { copy_bytes(memory.data(), waiting.board(peer).slot(rank(), 0), bytes); });
    const int64_t looked_at =
        best_time_of([&] { vm_read(waiting.peer(peer).pid(), address, memory.data(), bytes); });
    int64_t gain = 0;  // of all ranks, by a tenth at least
    for (const int64_t theirs : numbers_of_all(staged * 9 / 10 - looked_at)) gain += theirs;
    if (gain > 0) {
      desk_.ways.address_from_bytes = bytes;
      return;
    }
  }
}

}  // namespace shardway::shm
