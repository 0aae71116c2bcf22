// How a rank waits, apart from what it waits for.
#include "shm/board/waiting.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <new>
#include <thread>

#include "shm/memory/arena.h"

namespace shardway::testing {
namespace {

using namespace std::chrono_literals;

std::shared_ptr<shm::Peer> peer_of(const std::shared_ptr<shm::Arena>& arena, pid_t process) {
  const shm::File file(dup(arena->fd()));
  shm::File handle(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  return std::make_shared<shm::Peer>(file, std::move(handle), arena->nonce());
}

// A process that does nothing, and is stopped if it is asked to be.
class IdleProcess {
 public:
  explicit IdleProcess(bool is_stopped) : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) pause();
    }
    if (!is_stopped) return;
    kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  ~IdleProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  IdleProcess(const IdleProcess&) = delete;
  IdleProcess& operator=(const IdleProcess&) = delete;

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// Rank 0, whose peers never do anything by themselves. `processes` are those of its peers; without them they
// are threads.
shm::Waiting beside_idle_peers(const std::shared_ptr<shm::Arena>& arena, int ranks,
                               const std::vector<pid_t>& processes = {}) {
  const shm::BoardPlan plan(ranks);
  std::vector<shm::Board> boards;
  std::vector<std::shared_ptr<shm::Peer>> peers;
  for (int rank = 0; rank < ranks; ++rank) {
    std::byte* data = arena->allocate(plan.bytes());
    new (data) shm::BoardHead{};
    boards.emplace_back(data, nullptr, plan);
    peers.push_back(rank == 0           ? nullptr
                    : processes.empty() ? std::make_shared<shm::Peer>(arena)
                                        : peer_of(arena, processes[static_cast<size_t>(rank - 1)]));
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

// Ranks 0 and 2 say that they wait for each other: each shows one rank of those it waits for. Both wait for
// rank 1, too.
TEST(Waiting, AStoppedRankIsNamedEvenWhereTheOthersWaitForOneAnother) {
  const IdleProcess stopped(true), waits(false);
  const auto arena = shm::Arena::create(64 << 20);
  shm::Waiting waiting = beside_idle_peers(arena, 3, {stopped.pid(), waits.pid()});
  waiting.set_timeout(100ms);
  waiting.board(2).head().awaited.store(0);
  try {
    waiting.until(2, [] { return false; });
    FAIL() << "nobody was missed";
  } catch (const shm::PeerLost& lost) {
    EXPECT_EQ(lost.peer(), 1);
  }
}

}  // namespace
}  // namespace shardway::testing
