// What only a trial can tell: what a look into a peer's process costs.
#include <algorithm>
#include <chrono>
#include <vector>

#include "shm/copy.h"
#include "shm/group.h"
#include "shm/vm_read.h"

namespace shardway::shm {
namespace {

constexpr int kTrials = 8;

// Of a trial at its best: other work on the machine only ever adds to a time.
template <class Call>
int64_t best_time_of(Call&& call) {
  int64_t best = INT64_MAX;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto start = std::chrono::steady_clock::now();
    call();
    best = std::min<int64_t>(best, (std::chrono::steady_clock::now() - start).count());
  }
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
  // Ranks that take turns on a core cannot be timed.
  if (!given && size() > 1 && can_read_processes && desk_.waiting->spins()) tune_address();
}

// The numbers of all ranks, by rank.
std::vector<int64_t> Group::numbers_of_all(int64_t mine) {
  std::vector<int64_t> all(static_cast<size_t>(size()));
  gather_notes(std::as_bytes(std::span(&mine, 1)), reinterpret_cast<std::byte*>(all.data()), sizeof(mine));
  return all;
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
