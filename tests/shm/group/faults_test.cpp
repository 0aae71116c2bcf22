// Peers that die, leave, stall or fork.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <thread>

#include "holdings.h"
#include "rank_runner.h"
#include "scenario.h"
#include "shm/join/handshake.h"
#include "shm/memory/errors.h"

namespace shardway::testing {
namespace {

using Clock = std::chrono::steady_clock;

// What a call says when it fails, and that it does so within a second.
std::string failure_of(const std::function<void()>& call) {
  const auto start = Clock::now();
  try {
    call();
  } catch (const shm::PeerLost& error) {
    if (Clock::now() - start > std::chrono::seconds(1)) return "too late: " + std::string(error.what());
    return error.what();
  }
  return "nothing";
}

constexpr const char* kDead = "rank 1 could not be reached: its process ended";

TEST(ShmFaults, APeerKilledBetweenCallsIsNamedAtTheNextAndEveryLaterOne) {
  const Endings endings = run_processes(3, [](shm::SharedGroup& group) {
    meet(group);
    if (group.rank() == 1) raise(SIGKILL);
    for (int call = 0; call < 3; ++call) {
      const std::string said = failure_of([&] { meet(group); });
      require(said == kDead, said);
    }
    auto quickest = Clock::duration::max();  // one may lose its core
    for (int call = 0; call < 10; ++call) {
      const auto start = Clock::now();
      failure_of([&] { meet(group); });
      quickest = std::min(quickest, Clock::now() - start);
    }
    require(quickest < std::chrono::milliseconds(1), "later calls took their time");
  });
  EXPECT_EQ(endings, (Endings{"", "signal 9", ""}));
}

TEST(ShmFaults, APeerKilledInACallIsNamedByEverySurvivor) {
  for (const Where where : {Where::anywhere, Where::arena}) {
    Scenario scenario = gather({0}, 0, {30'000, 30'000, 30'000});
    scenario.where.assign(3, where);
    const Endings endings = run_processes(3, [&](shm::SharedGroup& group) {
      if (group.rank() == 1) {
        std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(150));
          kill(getpid(), SIGKILL);
        }).detach();
      }
      for (;;) {
        const std::string said = failure_of([&] {
          run_scenario(group, gather({0}, 0, {30'000, 30'000, 30'000}));
        });
        if (said == "nothing") continue;
        require(said == kDead, said);
        return;
      }
    });
    EXPECT_EQ(endings, (Endings{"", "signal 9", ""}));
  }
}

TEST(ShmFaults, APeerThatLeftIsNamed) {
  const Endings endings = run_processes(2, [](shm::SharedGroup& group) {
    meet(group);
    if (group.rank() == 1) return;
    const std::string said = failure_of([&] { meet(group); });
    require(said.find("rank 1 could not be reached: it") == 0, said);
  });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

TEST(ShmFaults, ARankMayLeaveWhileOthersFinishTheLastCall) {
  const Endings endings = run_processes(3, [](shm::SharedGroup& group) {
    if (group.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    run_scenario(group, gather({0}, 0, {50'000, 50'000, 50'000}));
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
}

TEST(ShmFaults, APeerThatDoesNotComeIsATimeout) {
  const Endings endings = run_processes(
      2,
      [](shm::SharedGroup& group) {
        if (group.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(600));
          const std::string said = failure_of([&] { meet(group); });
          const char* expected =
              "rank 0 could not be reached: it gave the group up, since this rank did not answer in time";
          require(said == expected, said);
          return;
        }
        const std::string said = failure_of([&] { meet(group); });
        require(said == "rank 1 could not be reached: it did not answer within the timeout of 200 ms", said);
      },
      {.timeout = std::chrono::milliseconds(200)});
  EXPECT_EQ(endings, (Endings{"", ""}));
}

TEST(ShmFaults, ACallThatFailsOnOneRankEndsAllOfThem) {
  const Endings endings = run_processes(2, [](shm::SharedGroup& group) {
    Scenario odd = gather({0}, 0, {100, 100});
    if (group.rank() == 1) odd.moves[1].extent = {99};  // expects one element less than rank 0 sends
    try {
      run_scenario(group, odd);
    } catch (const std::exception&) {
    }
    const std::string said = failure_of([&] { meet(group); });
    const std::string expected = group.rank() == 1 ? "a call of this rank failed, and ended the group"
                                                   : "rank 1 could not be reached: its call failed";
    require(said == expected, said);
  });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

TEST(ShmFaults, AChildOfForkGetsAnErrorAndItsExitEndsNothing) {
  const Endings endings = run_processes(2, [](shm::SharedGroup& group) {
    meet(group);
    const pid_t child = fork();
    if (child == 0) {
      int status = 1;
      try {
        meet(group);
      } catch (const shm::WrongProcess&) {
        status = 7;
      }
      _exit(status);
    }
    int status = 0;
    waitpid(child, &status, 0);
    require(WIFEXITED(status) && WEXITSTATUS(status) == 7, "the child was not refused");
    meet(group);
  });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

TEST(ShmGroups, ManyOfThemLeaveNoFilesMappingsOrMemoryBehind) {
  const int64_t named_before = names_in_shared_memory();
  const Endings endings = run_unjoined(3, [](int64_t rank, const shm::Exchange& exchange) {
    const auto arena = shm::Arena::create(1 << 30);
    require_nothing_left(*arena, [&] {
      const auto joined =
          shm::SharedGroup::join({.rank = rank, .size = 3, .exchange = exchange, .arena = arena});
      run_scenario(*joined.group, gather({0}, 0, {20'000, 1, 30'000}));
    });
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
  EXPECT_EQ(names_in_shared_memory(), named_before);
}

TEST(ShmGroups, RanksThatCannotMeetHaveNoGroupAndSayWhy) {
  const Endings endings = run_unjoined(3, [](int64_t rank, const shm::Exchange& exchange) {
    // Rank 1's word is garbled on the way, as if it came from another host.
    int round = 0;
    const shm::Exchange garbled = [&](std::span<const std::byte> mine) {
      std::vector<std::byte> all = exchange(mine);
      if (++round == 1) all[mine.size() + offsetof(shm::Hello, doorway)] ^= std::byte(1);
      return all;
    };
    const auto joined = shm::SharedGroup::join(
        {.rank = rank, .size = 3, .exchange = garbled, .arena = shm::Arena::create(1 << 26)});
    require(joined.group == nullptr, "there is a group");
    require(joined.why_not.find("no process of this host answers") != std::string::npos, joined.why_not);
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
}

shm::ContiguousCall gather_of(const shm::SharedGroup& group, const std::byte* input, std::byte* output,
                              int64_t bytes) {
  shm::ContiguousCall call{.input = input, .input_bytes = bytes, .output = output};
  for (int64_t peer = 0; peer < group.size(); ++peer) {
    call.sends.push_back({.begin = 0, .bytes = bytes});
    call.takes.push_back({.from = 0, .to = peer * bytes, .bytes = bytes});
  }
  return call;
}

// A gather through the ring for everybody, in which a rank may do something before it moves anything.
void gather_large(
    shm::SharedGroup& group, const std::function<void()>& before_moving = [] {}) {
  const int64_t bytes = 8 << 20;
  const std::vector<std::byte> mine(static_cast<size_t>(bytes));
  std::vector<std::byte> all(mine.size() * static_cast<size_t>(group.size()));
  std::vector<std::byte> rows(static_cast<size_t>(group.size()) * 64);
  const auto agrees = [&] {
    before_moving();
    return true;
  };
  const shm::Talk talk{.rows = rows.data(), .row_bytes = 64, .agrees = agrees};
  group.run(gather_of(group, mine.data(), all.data(), bytes), {}, &talk);
}

// Rank 2 waits for pieces of rank 0, which cannot go on: rank 1 does not empty the slots that are for all.
TEST(ShmFaults, ARankThatKeepsOthersWaitingIsNamedByWhoWaitsForThose) {
  for (const bool is_stopped : {false, true}) {
    const auto stay_away = [&] {
      if (is_stopped) {
        if (fork() == 0) {  // wakes its parent
          std::this_thread::sleep_for(std::chrono::seconds(2));
          kill(getppid(), SIGCONT);
          _exit(0);
        }
        raise(SIGSTOP);
      }
      std::this_thread::sleep_for(std::chrono::seconds(2));
    };
    const Endings endings =
        run_processes(3,
                      [&](shm::SharedGroup& group) {
                        gather_large(group);
                        if (group.rank() == 1) return gather_large(group, stay_away);
                        if (group.rank() == 0) group.set_timeout(std::chrono::seconds(20));
                        std::string said = "nothing";
                        try {
                          gather_large(group);
                        } catch (const shm::PeerLost& error) {
                          said = error.what();
                        }
                        require(said.starts_with("rank 1 could not be reached: it did not answer"), said);
                      },
                      {.timeout = std::chrono::milliseconds(500)});
    EXPECT_EQ(endings[0], "") << is_stopped;
    EXPECT_EQ(endings[2], "") << is_stopped;
  }
}

TEST(ShmFaults, ARankThatLeftIsNamedAndNotTheOneThatWasTold) {
  const Endings endings = run_processes(3, [](shm::SharedGroup& group) {
    meet(group);
    std::this_thread::sleep_for(std::chrono::milliseconds(100 * ((3 - group.rank()) % 3)));
    if (group.rank() == 2) return group.leave();  // rank 0 waits by now, and rank 1 comes later
    const std::string said = failure_of([&] { meet(group); });
    require(said == "rank 2 could not be reached: it left the group", said);
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
}

// Rank 0's bytes to all, as runs of bytes or as boxes.
void send_to_all(shm::SharedGroup& group, const std::byte* input, std::byte* output, int64_t bytes,
                 bool as_boxes, const shm::Talk& talk) {
  const bool is_root = group.rank() == 0;
  shm::ContiguousCall call{.input = input, .input_bytes = is_root ? bytes : 0, .output = output};
  for (int64_t peer = 0; peer < group.size(); ++peer) {
    call.sends.push_back({.begin = 0, .bytes = is_root ? bytes : 0});
    call.takes.push_back({.from = 0, .to = 0, .bytes = peer == 0 ? bytes : 0});
  }
  shm::Input own;
  if (as_boxes) {
    group.run(shm::part_of(call, group.rank(), own), {}, &talk);
  } else {
    group.run(call, {}, &talk);
  }
}

// Rank 1 dies when all have met, so rank 0 raises, and its caller changes the tensor. Rank 2, which has only
// then come to read it, must not take what it reads for a result.
TEST(ShmFaults, ATensorThatItsOwnerChangesAfterAnErrorIsNoResult) {
  constexpr int64_t kBytes = 1 << 20;
  for (const bool as_boxes : {false, true}) {
    const Endings endings = run_processes(3, [&](shm::SharedGroup& group) {
      std::byte* input = group.arena()->allocate(kBytes);
      std::memset(input, 0, kBytes);
      std::vector<std::byte> output(kBytes);
      std::vector<std::byte> rows(3 * 64);
      const auto agrees = [&] {
        if (group.rank() == 1) raise(SIGKILL);
        if (group.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        return true;
      };
      const shm::Talk talk{.rows = rows.data(), .row_bytes = 64, .agrees = agrees};
      bool has_returned = true;
      try {
        send_to_all(group, input, output.data(), kBytes, as_boxes, talk);
      } catch (const shm::PeerLost&) {
        has_returned = false;
      }
      std::memset(input, 0xff, kBytes);
      std::this_thread::sleep_for(std::chrono::milliseconds(1800));
      require(!has_returned, "it returned what its owner had changed");
    });
    EXPECT_EQ(endings, (Endings{"", "signal 9", ""})) << as_boxes;
  }
}

}  // namespace
}  // namespace shardway::testing
