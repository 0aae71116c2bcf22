#include "shm/memory/arena.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "shm/memory/errors.h"
#include "shm/memory/peer.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(Arena, BlocksAreApartAndAligned) {
  const auto arena = Arena::create(64 * kMiB);
  std::vector<std::byte*> blocks;
  for (int64_t bytes : {1, 64, 65, 4096, 5000, 100'000}) {
    blocks.push_back(arena->allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()) % 64, 0U);
    EXPECT_TRUE(arena->contains(blocks.back(), bytes));
    std::memset(blocks.back(), static_cast<int>(blocks.size()), static_cast<size_t>(bytes));
  }
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_EQ(blocks[i][0], std::byte(i + 1));
  const std::byte outside{};
  EXPECT_FALSE(arena->contains(&outside, 1));
}

TEST(Arena, FreedMemoryIsTakenAgainAndNeighboursMerge) {
  const auto arena = Arena::create(64 * kMiB);
  std::byte* first = arena->allocate(8192);
  std::byte* second = arena->allocate(8192);
  std::byte* third = arena->allocate(8192);
  arena->free(second);
  EXPECT_EQ(arena->allocate(4096), second);
  arena->free(second);
  arena->free(first);
  EXPECT_EQ(arena->allocate(16384), first);
  arena->free(first);
  arena->free(third);
  EXPECT_EQ(arena->stats().in_use_bytes, 0);
  EXPECT_EQ(arena->allocate(32768), first);
}

TEST(Arena, AFullOneSaysWhatIsNeededAndWhatIsThere) {
  const auto arena = Arena::create(4 * kMiB);
  arena->allocate(kMiB);
  try {
    arena->allocate(8 * kMiB);
    FAIL() << "8 MiB fitted into 4";
  } catch (const ArenaFull& error) {
    EXPECT_EQ(error.needed_bytes, 8 * kMiB);
    EXPECT_LT(error.available_bytes, 3 * kMiB);
    EXPECT_NE(std::string(error.what()).find("8388608 bytes are needed"), std::string::npos);
  }
  EXPECT_NE(arena->allocate(kMiB), nullptr);
}

TEST(Arena, WhatTheMachineDoesNotHaveIsRefusedBeforeItIsTouched) {
  const auto arena = Arena::create(4 * physical_memory_bytes());
  if (arena->size() < 2 * physical_memory_bytes()) GTEST_SKIP() << "the address space is too small to ask";
  EXPECT_THROW(arena->allocate(physical_memory_bytes() + physical_memory_bytes() / 2), ArenaFull);
}

TEST(Arena, TensOfThousandsOfBlocksLeaveNothingBehind) {
  const auto arena = Arena::create(512 * kMiB);
  std::mt19937 random(7);
  std::vector<std::byte*> alive;
  for (int i = 0; i < 40'000; ++i) {
    if (alive.size() > 200 || (!alive.empty() && random() % 3 == 0)) {
      const size_t which = random() % alive.size();
      arena->free(alive[which]);
      alive[which] = alive.back();
      alive.pop_back();
    } else {
      alive.push_back(arena->allocate(static_cast<int64_t>(random() % 300'000)));
      alive.back()[0] = std::byte(1);
    }
  }
  for (std::byte* block : alive) arena->free(block);
  EXPECT_EQ(arena->stats().in_use_bytes, 0);
  EXPECT_LT(arena->stats().committed_bytes, 256 * kMiB);
}

int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Arena, AChildOfForkNeitherTakesNorFrees) {
  const auto arena = Arena::create(64 * kMiB);
  std::byte* block = arena->allocate(kMiB);
  EXPECT_EQ(in_child([&] {
              arena->free(block);
              try {
                arena->allocate(64);
              } catch (const WrongProcess&) {
                return 7;
              }
              return 1;
            }),
            7);
  EXPECT_EQ(arena->stats().in_use_bytes, kMiB);
}

TEST(Arena, AChildOfForkGetsAnArenaOfItsOwn) {
  const auto own = Arena::of_process();
  EXPECT_EQ(Arena::of_process(), own);
  EXPECT_EQ(in_child([&] { return Arena::of_process()->nonce() != own->nonce() ? 7 : 1; }), 7);
}

// So that a checker of races sees one address where ranks that are threads share memory.
TEST(Arena, ThreadsOfItsProcessFindItWhereItLies) {
  auto arena = Arena::create(kMiB);
  const Nonce nonce = arena->nonce();
  EXPECT_EQ(Peer::find(nonce), nullptr);
  Peer::announce(arena);
  auto peer = Peer::find(nonce);
  ASSERT_NE(peer, nullptr);
  EXPECT_EQ(peer->base(), arena->base());
  EXPECT_EQ(Peer::find(nonce), peer);
  EXPECT_EQ(in_child([&] { return Peer::find(nonce) == nullptr ? 7 : 1; }), 7);
  arena.reset();
  EXPECT_EQ(reinterpret_cast<const MemoryHead*>(peer->base())->nonce, nonce);
  peer.reset();
  EXPECT_EQ(Peer::find(nonce), nullptr);
}

// A child of fork beside a thread that allocates finds every lock of allocation free.
TEST(Arena, InAChildOfForkBesideAThreadThatAllocatesIsFree) {
  std::byte* inherited = Arena::of_process()->allocate(1 << 16);
  std::atomic<bool> stops = false;
  std::thread other([&] {
    while (!stops) {
      std::byte* block = Arena::of_process()->allocate(1 << 16);
      Arena::is_in_any(block);
      Arena::free_anywhere(block);
    }
  });
  int hung = 0;
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      Arena::free_anywhere(inherited);
      Arena::of_process()->allocate(1 << 16)[5] = std::byte(1);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    hung += status == 0 ? 0 : 1;
  }
  stops = true;
  other.join();
  EXPECT_EQ(hung, 0);
  Arena::free_anywhere(inherited);
}

TEST(Arena, AnEmptyOneOfTheProcessIsGivenBack) {
  std::byte* block = Arena::of_process()->allocate(1 << 24);
  const Nonce nonce = Arena::of_process()->nonce();
  Arena::renew_of_process();
  EXPECT_EQ(Arena::of_process()->nonce(), nonce);
  Arena::free_anywhere(block);
  Arena::renew_of_process();
  EXPECT_EQ(Arena::stats_of_process().committed_bytes, 0);
  EXPECT_NE(Arena::of_process()->nonce(), nonce);
}

}  // namespace
}  // namespace shardway::shm
