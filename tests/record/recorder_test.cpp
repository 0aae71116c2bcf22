#include "record/recorder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "record/reader.h"

namespace shardway::testing {
namespace {

using namespace record;

// A group of its own for every test: the record is of the whole process.
uint64_t fresh_group() {
  static std::atomic<uint64_t> groups{1};
  return groups.fetch_add(1);
}

void make_calls(uint64_t group, uint64_t first, uint64_t last) {
  for (uint64_t number = first; number <= last; ++number) {
    OpenCall call({.op = "all_gather_v", .number = number, .group = group, .bytes = 8});
    call.done();
  }
}

std::vector<RecordedCall> calls_of(const std::vector<RecordedCall>& calls, uint64_t group) {
  std::vector<RecordedCall> found;
  for (const RecordedCall& call : calls) {
    if (call.group == group) found.push_back(call);
  }
  return found;
}

// Runs `body` in a child of fork. Returns whether it returned true.
template <class Body>
bool holds_in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Recorder, KeepsTheLast64CallsNewestLast) {
  const uint64_t group = fresh_group();
  make_calls(group, 1, 100);
  const std::vector<RecordedCall> calls = last_calls();
  ASSERT_EQ(calls.size(), 64U);
  for (size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i].number, 37 + i);
}

TEST(Recorder, ACallIsRunningThenDoneOrFailed) {
  const uint64_t group = fresh_group();
  {
    OpenCall done({.op = "barrier", .number = 7, .group = group, .rank = 2, .size = 3, .bytes = 64});
    const RecordedCall running = calls_of(last_calls(), group).at(0);
    EXPECT_EQ(running.op, "barrier");
    EXPECT_EQ(running.number, 7U);
    EXPECT_EQ(running.rank, 2);
    EXPECT_EQ(running.size, 3);
    EXPECT_EQ(running.bytes, 64);
    EXPECT_EQ(running.state, CallState::running);
    EXPECT_EQ(running.ended_ns, 0);
    EXPECT_LE(running.begun_ns, now_ns());
    done.done();
    const OpenCall failed({.op = "barrier", .number = 8, .group = group});
  }
  const std::vector<RecordedCall> calls = calls_of(last_calls(), group);
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].state, CallState::done);
  EXPECT_GE(calls[0].ended_ns, calls[0].begun_ns);
  EXPECT_EQ(calls[1].state, CallState::failed);
}

TEST(Recorder, ACallIsInTheRecordOnceItIsOpen) {
  const uint64_t group = fresh_group();
  BegunCall call({.op = "barrier", .number = 9, .group = group});
  EXPECT_TRUE(calls_of(last_calls(), group).empty());
  call.open();
  ASSERT_EQ(calls_of(last_calls(), group).size(), 1U);
  EXPECT_EQ(calls_of(last_calls(), group)[0].state, CallState::running);
  call.done();
  EXPECT_EQ(calls_of(last_calls(), group)[0].state, CallState::done);
}

TEST(Recorder, ACallUnderWayOutlastsAnyNumberOfOthers) {
  const uint64_t stuck = fresh_group();
  OpenCall call({.op = "all_reduce", .number = 1, .group = stuck});
  make_calls(fresh_group(), 1, 1000);
  const std::vector<RecordedCall> calls = calls_of(last_calls(), stuck);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].state, CallState::running);
}

TEST(Recorder, MoreCallsAtOnceThanLinesGoUnrecorded) {
  std::vector<std::unique_ptr<OpenCall>> open;
  const uint64_t group = fresh_group();
  for (uint64_t number = 1; number <= 70; ++number)
    open.push_back(std::make_unique<OpenCall>(CallStart{.number = number, .group = group}));
  EXPECT_EQ(calls_of(last_calls(), group).size(), 64U);
  open.clear();
  make_calls(group, 71, 71);
  EXPECT_EQ(last_calls().back().number, 71U);
}

TEST(Recorder, ALongNameIsCut) {
  const std::string name(200, 'x');
  OpenCall call({.op = name.c_str(), .group = fresh_group()});
  EXPECT_EQ(last_calls().back().op, std::string(kOpBytes - 1, 'x'));
}

TEST(Recorder, IsFoundInProcByItsOwner) {
  const uint64_t group = fresh_group();
  make_calls(group, 5, 5);
  const auto record = record_of(getpid());
  ASSERT_TRUE(record);
  EXPECT_EQ(record->pid, getpid());
  EXPECT_EQ(record->calls.back().number, 5U);
  EXPECT_EQ(record->state, state_of(getpid()));
}

TEST(Recorder, NobodyCanWriteItThroughProc) {
  make_calls(fresh_group(), 1, 1);
  bool is_found = false;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) != "/memfd:shardway-calls (deleted)") continue;
    is_found = true;
    const shm::File file(open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(file);
    EXPECT_LT(pwrite(file.get(), "x", 1, 0), 0);
    EXPECT_NE(ftruncate(file.get(), 0), 0);
  }
  EXPECT_TRUE(is_found);
}

TEST(Recorder, AChildOfForkHasItsOwn) {
  const uint64_t group = fresh_group();
  make_calls(group, 1, 1);
  EXPECT_TRUE(holds_in_child([&] {
    if (record_of(getpid())) return false;  // what it inherited is its parent's
    make_calls(group, 2, 2);
    const auto record = record_of(getpid());
    return record && record->calls.size() == 1 && record->calls[0].number == 2;
  }));
  EXPECT_EQ(calls_of(last_calls(), group).size(), 1U);
}

TEST(Recorder, ACallUnderWayAtAForkStaysTheParents) {
  const uint64_t group = fresh_group();
  auto call = std::make_unique<OpenCall>(CallStart{.number = 1, .group = group});
  EXPECT_TRUE(holds_in_child([&] {
    call.reset();
    return true;
  }));
  EXPECT_EQ(calls_of(last_calls(), group).at(0).state, CallState::running);
}

TEST(Recorder, WithoutADescriptorCallsGoOnUnrecorded) {
  EXPECT_TRUE(holds_in_child([] {
    const rlimit none{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_NOFILE, &none);
    make_calls(fresh_group(), 1, 3);
    return last_calls().empty();
  }));
}

TEST(Recorder, TellsTheJobOfTheEnvironment) {
  EXPECT_TRUE(holds_in_child([] {
    setenv("SHARDWAY_JOB", "tested", 1);
    setenv("RANK", "2", 1);
    setenv("WORLD_SIZE", "4", 1);
    make_calls(fresh_group(), 1, 1);
    const auto record = record_of(getpid());
    return record && record->is_of_job && record->rank == 2 && record->size == 4 &&
           record->job == "launch tested" && record->launcher == "shardway launch";
  }));
  EXPECT_TRUE(holds_in_child([] {
    setenv("SHARDWAY_JOB", "tested", 1);
    setenv("RANK", "no number", 1);
    make_calls(fresh_group(), 1, 1);
    const auto record = record_of(getpid());
    return record && !record->is_of_job;
  }));
}

// Every field of a call follows from its number, so that a mixture of two calls is seen.
CallStart telling(uint64_t number) {
  static const std::array<const char*, 3> ops = {"all_gather_v", "reduce_scatter_v_and_more_of_it", "b"};
  const auto n = static_cast<int64_t>(number % 1000);
  return {
      .op = ops[number % 3], .number = number, .group = number * 3, .rank = n, .size = n + 1, .bytes = n * 7};
}

TEST(Recorder, AReaderNeverSeesHalfACall) {
  make_calls(fresh_group(), 1, 1);  // the record is there before anybody looks
  std::atomic<bool> is_over{false};
  std::vector<std::thread> writers;
  for (uint64_t writer = 0; writer < 2; ++writer) {
    writers.emplace_back([&, writer] {
      for (uint64_t number = writer + 1; !is_over; number += 2) {
        OpenCall call(telling(number));
        if (number % 5 != 0) call.done();
      }
    });
  }
  const pid_t pid = getpid();
  const bool is_right = holds_in_child([&] {
    int64_t seen = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (std::chrono::steady_clock::now() < end) {
      const auto record = record_of(pid);
      if (!record) return false;
      for (const RecordedCall& call : record->calls) {
        if (call.group != call.number * 3) continue;  // of another test
        const CallStart expected = telling(call.number);
        const bool is_whole = call.op == expected.op && call.rank == expected.rank &&
                              call.size == expected.size && call.bytes == expected.bytes;
        const bool is_ended = call.state != CallState::running;
        const bool is_failed = call.state == CallState::failed;
        if (!is_whole || is_ended != (call.ended_ns != 0)) return false;
        if (is_ended && is_failed != (call.number % 5 == 0)) return false;
        ++seen;
      }
    }
    return seen > 1000;
  });
  is_over = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_TRUE(is_right);
}

}  // namespace
}  // namespace shardway::testing
