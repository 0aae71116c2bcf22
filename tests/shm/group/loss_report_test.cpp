// What ranks print when one dies or does not come, and what their records say.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "rank_runner.h"
#include "record/recorder.h"
#include "shardway/shm.h"
#include "shm/board/long_wait.h"
#include "shm/memory/errors.h"

namespace shardway::testing {
namespace {

using std::chrono::milliseconds;

// A file for what each rank prints to standard error.
class Prints {
 public:
  explicit Prints(int64_t ranks) {
    for (int64_t rank = 0; rank < ranks; ++rank) files_.push_back(shm::new_memory_file("printed"));
  }
  void redirect(int64_t rank) const { dup2(files_[static_cast<size_t>(rank)].get(), STDERR_FILENO); }
  std::string of(int64_t rank) const {
    std::array<char, 8192> text{};
    const ssize_t bytes = pread(files_[static_cast<size_t>(rank)].get(), text.data(), text.size(), 0);
    return {text.data(), static_cast<size_t>(std::max(bytes, ssize_t{0}))};
  }

 private:
  std::vector<shm::File> files_;
};

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

void call_once(const HostGroup& group) {
  const std::vector<int64_t> sizes(static_cast<size_t>(group.size()), 4);
  const std::array<int32_t, 4> mine{};
  std::vector<int32_t> all(static_cast<size_t>(4 * group.size()));
  group.all_gather_v<int32_t>(mine, all, sizes);
}

bool is_lost(const std::function<void()>& call) {
  try {
    call();
  } catch (const shm::PeerLost&) {
    return true;
  }
  return false;
}

TEST(LossReport, ATimeoutSaysWhoIsBehindOnEveryRankThatWaits) {
  const Prints prints(3);
  const Endings endings = run_unjoined(3, [&](int64_t rank, const shm::Exchange& exchange) {
    prints.redirect(rank);
    const auto group =
        HostGroup::join({.rank = rank, .size = 3, .exchange = exchange, .timeout = milliseconds(400)});
    group.barrier();
    // It never calls again, and stays while the others look.
    if (rank == 2) return std::this_thread::sleep_for(std::chrono::seconds(2));
    if (!is_lost([&] { call_once(group); }) || !is_lost([&] { call_once(group); }))
      throw std::runtime_error("no loss");
    const record::RecordedCall last = record::last_calls().back();
    if (last.op != "all_gather_v" || last.state != record::CallState::failed || last.number != 2)
      throw std::runtime_error("its own record lacks the call");
    std::this_thread::sleep_for(milliseconds(800));
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
  for (const int64_t rank : {0, 1}) {
    const std::string text = prints.of(rank);
    EXPECT_TRUE(holds(text, "shardway: rank 2 could not be reached: it did not answer within the timeout"))
        << text;
    EXPECT_TRUE(holds(text, "seen by rank " + std::to_string(rank))) << text;
    EXPECT_TRUE(holds(text, "in all_gather_v for ")) << text;
    EXPECT_TRUE(holds(text, "(call 2, 16 B)")) << text;
    EXPECT_TRUE(holds(text, "last barrier (call 1, 0 B); 1 call behind\n")) << text;
    EXPECT_EQ(count_of(text, "of 3 ranks"), 1U) << text;  // once, though two calls threw
    EXPECT_EQ(count_of(text, "\n"), count_of(text, "shardway: ")) << text;
  }
  EXPECT_EQ(prints.of(2), "");
}

TEST(LongWait, IsToldOnceByEveryRankThatWaitsAndNamesWhoIsMissing) {
  const Prints prints(3);
  const Endings endings = run_unjoined(3, [&](int64_t rank, const shm::Exchange& exchange) {
    prints.redirect(rank);
    shm::set_long_wait(milliseconds(300));
    const auto group = HostGroup::join({.rank = rank, .size = 3, .exchange = exchange});
    group.barrier();
    if (rank == 2) {
      while (prints.of(0).empty() || prints.of(1).empty()) std::this_thread::sleep_for(milliseconds(20));
      std::this_thread::sleep_for(milliseconds(600));  // as long again: nothing more is told
    }
    call_once(group);
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
  for (const int64_t rank : {0, 1}) {
    const std::string text = prints.of(rank);
    EXPECT_EQ(count_of(text, "has waited for"), 1U) << text;
    EXPECT_TRUE(holds(text, "shardway: rank " + std::to_string(rank) + " has waited for ")) << text;
    EXPECT_TRUE(holds(text, " in all_gather_v (call 2) of group ")) << text;
    EXPECT_TRUE(holds(text, "shardway:   rank 2: in no call for ")) << text;
    EXPECT_TRUE(holds(text, "last barrier (call 1, 0 B); 1 call behind\n")) << text;
  }
  EXPECT_EQ(prints.of(2), "");
}

TEST(LossReport, ADeathSaysWhoIsDead) {
  const Prints prints(3);
  run_unjoined(3, [&](int64_t rank, const shm::Exchange& exchange) {
    prints.redirect(rank);
    const auto group = HostGroup::join({.rank = rank, .size = 3, .exchange = exchange});
    group.barrier();
    group.barrier();
    if (rank == 1) raise(SIGKILL);
    is_lost([&] { call_once(group); });
    std::this_thread::sleep_for(milliseconds(300));
  });
  for (const int64_t rank : {0, 2}) {
    const std::string text = prints.of(rank);
    EXPECT_TRUE(holds(text, "shardway: rank 1 could not be reached: its process ended")) << text;
    EXPECT_TRUE(holds(text, "  rank 1: its process has ended, after it had begun call 2; 1 call behind\n"))
        << text;
  }
}

TEST(LossReport, SaysThatARankIsStopped) {
  const Prints prints(2);
  const auto pids = static_cast<pid_t*>(
      mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  run_unjoined(2, [&](int64_t rank, const shm::Exchange& exchange) {
    prints.redirect(rank);
    if (rank == 1) *pids = getpid();
    const auto group =
        HostGroup::join({.rank = rank, .size = 2, .exchange = exchange, .timeout = milliseconds(400)});
    group.barrier();
    if (rank == 1) {
      raise(SIGSTOP);
      return;
    }
    is_lost([&] { group.barrier(); });
    kill(*pids, SIGCONT);
  });
  munmap(pids, sizeof(pid_t));
  EXPECT_TRUE(holds(prints.of(0), "last barrier (call 1, 0 B); stopped, 1 call behind")) << prints.of(0);
}

TEST(LossReport, IsSilentAtANormalEndAndWhereItIsAskedTo) {
  const Prints prints(2);
  run_unjoined(2, [&](int64_t rank, const shm::Exchange& exchange) {
    prints.redirect(rank);
    {
      const auto group = HostGroup::join({.rank = rank, .size = 2, .exchange = exchange});
      group.barrier();
      if (rank == 0) is_lost([&] { group.barrier(); });  // the other leaves: no loss that surprises
    }
    setenv("SHARDWAY_QUIET", "1", 1);
    const auto group =
        HostGroup::join({.rank = rank, .size = 2, .exchange = exchange, .timeout = milliseconds(200)});
    if (rank == 0 && !is_lost([&] { group.barrier(); })) throw std::runtime_error("no loss");
    if (rank == 1) std::this_thread::sleep_for(milliseconds(600));
  });
  EXPECT_EQ(prints.of(0), "");
  EXPECT_EQ(prints.of(1), "");
}

TEST(Records, SayTheGroupAlikeOnEveryRank) {
  const Endings endings = run_processes(3, [](shm::SharedGroup& group) {
    std::array<uint64_t, 3> ids{};
    const uint64_t mine = group.id();
    group.gather_notes({.note = std::as_bytes(std::span(&mine, 1)),
                        .rows = reinterpret_cast<std::byte*>(ids.data()),
                        .row_bytes = 8});
    for (const uint64_t id : ids) {
      if (id != mine) throw std::runtime_error("another id");
    }
    const std::vector<record::RecordedCall> calls = record::last_calls();
    if (calls.size() != 2 || calls[0].op != "join" || calls[1].op != "call" || calls[1].group != mine ||
        calls[1].rank != group.rank() || calls[1].size != 3 || calls[1].number != 1)
      throw std::runtime_error("the record says something else");
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
}

TEST(Records, HaveTheNameAndTheBytesOfEveryOp) {
  const Endings endings = run_unjoined(2, [](int64_t rank, const shm::Exchange& exchange) {
    const auto group = HostGroup::join({.rank = rank, .size = 2, .exchange = exchange});
    std::vector<double> two(2);
    std::vector<double> one(1);
    const std::vector<int64_t> sizes = {1, 1};
    group.all_gather_v<double>(one, two, sizes);
    group.reduce_scatter_v<double>(two, one, sizes);
    group.all_to_all_v<double>(two, sizes, two, sizes);
    group.all_reduce<double>(two, two);
    group.broadcast<double>(two, 1);
    group.barrier();
    std::string said;
    for (const record::RecordedCall& call : record::last_calls())
      said += call.op + " " + std::to_string(call.number) + " " + std::to_string(call.bytes) + ", ";
    const std::string expected =
        "join 0 0, all_gather_v 1 8, reduce_scatter_v 2 16, all_to_all_v 3 16, all_reduce 4 16, "
        "broadcast 5 16, barrier 6 0, ";
    if (said != expected) throw std::runtime_error(said);
  });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

}  // namespace
}  // namespace shardway::testing
