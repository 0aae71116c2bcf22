// How a rank waits, apart from what it waits for.
#include "shm/board/waiting.h"

#include <gtest/gtest.h>

#include <new>
#include <thread>

#include "shm/memory/arena.h"

namespace shardway::testing {
namespace {

using namespace std::chrono_literals;

// A rank whose only peer never does anything.
shm::Waiting beside_an_idle_peer(const std::shared_ptr<shm::Arena>& arena) {
  const shm::BoardPlan plan(2);
  std::vector<shm::Board> boards;
  for (int rank = 0; rank < 2; ++rank) {
    std::byte* data = arena->allocate(plan.bytes());
    new (data) shm::BoardHead{};
    boards.emplace_back(data, nullptr, plan);
  }
  return {0, std::move(boards), {nullptr, std::make_shared<shm::Peer>(arena)}, {}};
}

// As on a busy machine, or where many other messages come.
TEST(Waiting, SlowLooksMakeNoOtherTimeout) {
  shm::Waiting waiting = beside_an_idle_peer(shm::Arena::create(64 << 20));
  int looks = 0;
  const bool came = waiting.within(10ms, {.peers = {1}}, [&] {
    if (++looks > 3) std::this_thread::sleep_for(20ms);
    return false;
  });
  EXPECT_FALSE(came);
  EXPECT_FALSE(waiting.is_lost());
}

}  // namespace
}  // namespace shardway::testing
