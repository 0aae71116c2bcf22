// How a rank waits, apart from what it waits for.
#include "shm/board/waiting.h"

#include <gtest/gtest.h>

#include <new>
#include <thread>

#include "shm/memory/arena.h"

namespace shardway::testing {
namespace {

using namespace std::chrono_literals;

// Rank 0, whose peers never do anything by themselves.
shm::Waiting beside_idle_peers(const std::shared_ptr<shm::Arena>& arena, int ranks) {
  const shm::BoardPlan plan(ranks);
  std::vector<shm::Board> boards;
  std::vector<std::shared_ptr<shm::Peer>> peers;
  for (int rank = 0; rank < ranks; ++rank) {
    std::byte* data = arena->allocate(plan.bytes());
    new (data) shm::BoardHead{};
    boards.emplace_back(data, nullptr, plan);
    peers.push_back(rank == 0 ? nullptr : std::make_shared<shm::Peer>(arena));
  }
  return {0, std::move(boards), std::move(peers), {.spins = false}};
}

// As on a busy machine, or where many other messages come.
TEST(Waiting, SlowLooksMakeNoOtherTimeout) {
  shm::Waiting waiting = beside_idle_peers(shm::Arena::create(64 << 20), 2);
  int looks = 0;
  const bool came = waiting.within(10ms, {.peers = {1}}, [&] {
    if (++looks > 3) std::this_thread::sleep_for(20ms);
    return false;
  });
  EXPECT_FALSE(came);
  EXPECT_FALSE(waiting.is_lost());
}

// Rank 1 brings its piece and leaves; then rank 2 brings its own.
TEST(Waiting, APeerThatLeavesWhenItsPartIsDoneIsNotMissed) {
  shm::Waiting waiting = beside_idle_peers(shm::Arena::create(64 << 20), 3);
  int looks = 0;
  const auto has_come = [&](int64_t peer) { return looks > (peer == 1 ? 10 : 200); };
  const auto missing = [&] {
    std::vector<int64_t> peers;
    for (const int64_t peer : {1, 2}) {
      if (!has_come(peer)) peers.push_back(peer);
    }
    return peers;
  };
  waiting.until_any(missing, [&] {
    if (++looks == 11) waiting.board(1).head().ended.store(shm::word_of({.how = shm::End::left, .rank = 1}));
    std::this_thread::sleep_for(1ms);
    return has_come(2);
  });
  EXPECT_FALSE(waiting.is_lost());
}

TEST(Waiting, APeerThatLeavesBeforeItsPartIsDoneIsMissed) {
  shm::Waiting waiting = beside_idle_peers(shm::Arena::create(64 << 20), 3);
  waiting.board(1).head().ended.store(shm::word_of({.how = shm::End::left, .rank = 1}));
  EXPECT_THROW(waiting.until_any(
                   [] {
                     return std::vector<int64_t>{1, 2};
                   },
                   [] { return false; }),
               shm::PeerLost);
}

}  // namespace
}  // namespace shardway::testing
