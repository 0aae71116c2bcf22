#include "shm/board/roll.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace shardway::shm {
namespace {

// Any rank can write these words: whatever else stands there is the last value.
template <class Word>
Word value_of(uint32_t value) {
  return static_cast<Word>(std::min(value, uint32_t{2}));
}

// Acquire and release: whoever sees what was settled sees what the one that settled it had written and seen.
template <class Word>
Word settled(std::atomic<uint32_t>& word, Word wanted) {
  uint32_t found = 0;
  const bool is_first = word.compare_exchange_strong(found, static_cast<uint32_t>(wanted),
                                                     std::memory_order_acq_rel, std::memory_order_acquire);
  return is_first ? wanted : value_of<Word>(found);
}

}  // namespace

// Acquire, here and in outcome(): pairs with settled().
Presence Roll::presence(int64_t round, int64_t rank) const {
  return value_of<Presence>(seat(round, rank).presence.load(std::memory_order_acquire));
}

Presence Roll::settle(int64_t round, int64_t rank, Presence wanted) const {
  return settled(seat(round, rank).presence, wanted);
}

Outcome Roll::outcome(int64_t round) const {
  return value_of<Outcome>(head(round).outcome.load(std::memory_order_acquire));
}

Outcome Roll::settle(int64_t round, Outcome wanted) const { return settled(head(round).outcome, wanted); }

void Roll::tell(int64_t round, int64_t turn, int64_t rank, std::span<const std::byte> bytes) const {
  if (bytes.size() > kToldBytes || turn >= kTurns)
    throw std::logic_error("the ranks that shrink a group tell one another too much");
  Told& told = seat(round, rank).told[static_cast<size_t>(turn)];
  std::memcpy(told.bytes.data(), bytes.data(), bytes.size());
  told.is_there.store(1, std::memory_order_release);  // pairs with has_told
}

// Acquire: pairs with the release in tell.
bool Roll::has_told(int64_t round, int64_t turn, int64_t rank) const {
  return seat(round, rank).told[static_cast<size_t>(turn)].is_there.load(std::memory_order_acquire) != 0;
}

void Roll::hear(int64_t round, int64_t turn, int64_t rank, std::span<std::byte> bytes) const {
  std::memcpy(bytes.data(), seat(round, rank).told[static_cast<size_t>(turn)].bytes.data(), bytes.size());
}

}  // namespace shardway::shm
