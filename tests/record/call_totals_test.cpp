#include "record/call_totals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "record/recorder.h"

namespace shardway::testing {
namespace {

using namespace record;

void call(const char* op, uint64_t group, int64_t bytes, int64_t waited_ns = -1) {
  OpenCall open({.op = op, .number = 1, .group = group, .rank = 2, .size = 3, .bytes = bytes});
  if (waited_ns >= 0) open.set_waited(waited_ns);
  open.done();
}

std::optional<CallTotals> totals_of(const std::string& op, uint64_t group) {
  for (const CallTotals& totals : call_totals()) {
    if (totals.op == op && totals.group == group) return totals;
  }
  return std::nullopt;
}

TEST(CallTotals, AreSumsByOpAndGroup) {
  call("all_gather_v", 901, 10, 1'000'000'000);
  call("all_gather_v", 901, 20, 500'000'000);
  call("all_reduce", 901, 5, 0);
  call("all_gather_v", 902, 7);
  const auto gathers = totals_of("all_gather_v", 901);
  ASSERT_TRUE(gathers);
  EXPECT_EQ(gathers->calls, 2);
  EXPECT_EQ(gathers->failed, 0);
  EXPECT_EQ(gathers->bytes, 30);
  EXPECT_EQ(gathers->rank, 2);
  EXPECT_EQ(gathers->size, 3);
  EXPECT_TRUE(gathers->knows_waiting);
  EXPECT_DOUBLE_EQ(gathers->waiting_s, 1.5);
  EXPECT_EQ(totals_of("all_reduce", 901)->bytes, 5);
  EXPECT_TRUE(totals_of("all_reduce", 901)->knows_waiting);
  EXPECT_FALSE(totals_of("all_gather_v", 902)->knows_waiting);
}

TEST(CallTotals, TimeIsThatOfTheClock) {
  const auto begin = std::chrono::steady_clock::now();
  {
    OpenCall open({.op = "slept", .number = 1, .group = 903});
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    open.done();
  }
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(totals_of("slept", 903)->seconds, 0.19);
  EXPECT_LE(totals_of("slept", 903)->seconds, passed.count() + 0.1);
}

TEST(CallTotals, ACallThatFailsIsCountedAsBoth) {
  { const OpenCall failing({.op = "all_reduce", .number = 1, .group = 904}); }
  EXPECT_EQ(totals_of("all_reduce", 904)->calls, 1);
  EXPECT_EQ(totals_of("all_reduce", 904)->failed, 1);
}

TEST(CallTotals, NoCallOfManyThreadsIsLost) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 5000;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([] {
      for (int i = 0; i < kCalls; ++i) call("all_to_all_v", 905, 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(totals_of("all_to_all_v", 905)->calls, kThreads * kCalls);
  EXPECT_EQ(totals_of("all_to_all_v", 905)->bytes, kThreads * kCalls * 2);
}

TEST(CallTotals, NoCallIsLostOrCountedTwiceWhileTheyAreAskedFor) {
  constexpr int64_t kCalls = 20'000;
  std::thread caller([] {
    for (int64_t i = 0; i < kCalls; ++i) call("gather_v", 907, 2);
  });
  int64_t seen = 0;
  while (seen < kCalls) {
    const auto totals = totals_of("gather_v", 907);
    const int64_t calls = totals ? totals->calls : 0;
    ASSERT_GE(calls, seen);
    ASSERT_LE(calls, kCalls);
    seen = calls;
  }
  caller.join();
  EXPECT_EQ(totals_of("gather_v", 907)->calls, kCalls);
  EXPECT_EQ(totals_of("gather_v", 907)->bytes, 2 * kCalls);
}

TEST(CallTotals, ACallThatIsOpenedLateLastsFromItsBeginning) {
  {
    BegunCall begun({.op = "late", .number = 1, .group = 908});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    begun.open();
    begun.done();
  }
  EXPECT_GE(totals_of("late", 908)->seconds, 0.045);
}

TEST(CallTotals, ACallThatFailsBeforeItIsOpenIsCounted) {
  { const BegunCall begun({.op = "unsaid", .number = 1, .group = 909}); }
  EXPECT_EQ(totals_of("unsaid", 909)->calls, 1);
  EXPECT_EQ(totals_of("unsaid", 909)->failed, 1);
}

TEST(CallTotals, AChildOfForkCountsItsOwn) {
  call("barrier", 906, 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool starts_anew = !totals_of("barrier", 906);
    call("barrier", 906, 0);
    _exit(starts_anew && totals_of("barrier", 906)->calls == 1 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// In a child, for the table stays full.
TEST(CallTotals, WithVeryManyGroupsTheLaterOnesAreCountedByOp) {
  const pid_t child = fork();
  if (child == 0) {
    constexpr uint64_t kGroups = 3000;
    for (uint64_t group = 1; group <= kGroups; ++group) call("broadcast", group, 1);
    int64_t calls = 0;
    for (const CallTotals& totals : call_totals()) calls += totals.calls;
    _exit(calls == kGroups && totals_of("broadcast", 0) && totals_of("broadcast", 1) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace shardway::testing
