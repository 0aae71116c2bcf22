// Groups that shrink when ranks are gone.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <numeric>
#include <thread>

#include "dice.h"
#include "effort.h"
#include "holdings.h"
#include "rank_runner.h"
#include "scenario.h"
#include "shardway/shm.h"
#include "shm/board/interrupt.h"
#include "shm/memory/errors.h"

namespace shardway::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Ints = std::vector<int64_t>;
using SharedGroupPtr = std::shared_ptr<shm::SharedGroup>;

std::string text_of(const Ints& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : " ") + std::to_string(number);
  return text;
}

void require_ranks(const Ints& found, const Ints& expected) {
  require(found == expected, "the ranks are " + text_of(found) + ", not " + text_of(expected));
}

// What every rank of the group says of itself.
Ints told(shm::SharedGroup& group, int64_t mine) {
  Ints all(static_cast<size_t>(group.size()));
  group.gather_notes({.note = std::as_bytes(std::span(&mine, 1)),
                      .rows = reinterpret_cast<std::byte*>(all.data()),
                      .row_bytes = sizeof(int64_t)});
  return all;
}

// Small, staged and combined: every way in which a group moves bytes.
void use(shm::SharedGroup& group) {
  const Ints sizes(static_cast<size_t>(group.size()), 40'000);
  run_scenario(group, gather({0}, 0, Ints(sizes.size(), 3)));
  run_scenario(group, gather({0}, 0, sizes), 2);
  run_scenario(group, reduce_scatter({0}, 0, sizes));
}

// Runs calls until one fails, and returns what that one says.
std::string end_of(shm::SharedGroup& group) {
  try {
    for (;;) told(group, 0);
  } catch (const shm::PeerLost& lost) {
    return lost.what();
  }
}

void die_in(std::chrono::microseconds time) {
  std::thread([time] {
    std::this_thread::sleep_for(time);
    kill(getpid(), SIGKILL);
  }).detach();
}

struct Loss {
  int64_t ranks;
  Ints dead;
};

class ShrinkAfter : public ::testing::TestWithParam<Loss> {};

TEST_P(ShrinkAfter, ADeathInACallTheOthersGoOnInTheirOrder) {
  const auto& [ranks, dead] = GetParam();
  Endings expected(static_cast<size_t>(ranks));
  for (const int64_t rank : dead) expected[static_cast<size_t>(rank)] = "signal 9";
  const Endings endings = run_processes(ranks, [dead = dead](shm::SharedGroup& group) {
    told(group, 0);
    const auto is_dead = [&](int64_t rank) {
      return std::find(dead.begin(), dead.end(), rank) != dead.end();
    };
    if (is_dead(group.rank())) die_in(20ms);
    const std::string said = end_of(group);
    if (is_dead(group.rank())) pause();  // another one died first
    require(said.find("its process ended") != std::string::npos, said);
    const auto start = Clock::now();
    const auto [small, members] = group.shrink(30s);
    require(Clock::now() - start < 10s, "waited for the dead");
    Ints living;
    for (int64_t rank = 0; rank < group.size(); ++rank) {
      if (!is_dead(rank)) living.push_back(rank);
    }
    require_ranks(members, living);
    require_ranks(told(*small, group.rank()), living);
    require(small->timeout() == group.timeout(), "another timeout");
    use(*small);
    const std::string still = end_of(group);
    require(still.find("its process ended") != std::string::npos, still);
  });
  EXPECT_EQ(endings, expected);
}

INSTANTIATE_TEST_SUITE_P(, ShrinkAfter,
                         ::testing::Values(Loss{2, {0}}, Loss{2, {1}}, Loss{3, {0}}, Loss{3, {1}},
                                           Loss{3, {0, 1}}, Loss{4, {0, 3}}, Loss{4, {1, 2}},
                                           Loss{4, {0, 1, 3}}),
                         [](const auto& info) {
                           std::string name = std::to_string(info.param.ranks) + "without";
                           for (const int64_t rank : info.param.dead) name += std::to_string(rank);
                           return name;
                         });

TEST(Shrink, OfAGroupThatNobodyLeftHasTheSameRanks) {
  for (const int64_t ranks : {1, 3}) {
    const Endings endings = run_processes(ranks, [ranks](shm::SharedGroup& group) {
      const auto [small, members] = group.shrink();
      Ints all(static_cast<size_t>(ranks));
      std::iota(all.begin(), all.end(), 0);
      require_ranks(members, all);
      use(*small);
      const std::string said = end_of(group);
      require(said.find("smaller") != std::string::npos, said);
    });
    EXPECT_EQ(endings, Endings(static_cast<size_t>(ranks)));
  }
}

TEST(Shrink, ThreadsThatAreRanksGoOnToo) {
  run_threads(3, [](shm::SharedGroup& group) {
    told(group, 0);
    const auto [small, members] = group.shrink();
    require_ranks(told(*small, group.rank()), {0, 1, 2});
    use(*small);
  });
}

TEST(Shrink, OfAShrunkenGroupWorksAgainAndAgain) {
  const Endings endings = run_processes(4, [](shm::SharedGroup& group) {
    Ints left = {0, 1, 2, 3};
    SharedGroupPtr small;
    for (const int64_t dying : {0, 2, 1}) {
      shm::SharedGroup& used = small ? *small : group;
      told(used, 0);
      if (group.rank() == dying) raise(SIGKILL);
      end_of(used);
      small = used.shrink(30s).group;
      std::erase(left, dying);
      require_ranks(told(*small, group.rank()), left);
      use(*small);
    }
  });
  EXPECT_EQ(endings, (Endings{"signal 9", "signal 9", "signal 9", ""}));
}

TEST(Shrink, OfTheSameGroupTwiceIsRefused) {
  const Endings endings = run_processes(2, [](shm::SharedGroup& group) {
    const auto small = group.shrink().group;
    try {
      group.shrink();
    } catch (const std::invalid_argument& error) {
      require(error.what() == std::string("the group was shrunk before: shrink the group that came of it"),
              error.what());
      use(*small);
      return;
    }
    throw std::runtime_error("it was not refused");
  });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

TEST(Shrink, LeavesOutARankThatHasLeftWithoutWaitingForIt) {
  const Endings endings = run_unjoined(3, [](int64_t rank, const shm::Exchange& exchange) {
    auto group = shm::SharedGroup::join({.rank = rank, .size = 3, .exchange = exchange}).group;
    if (rank == 1) {
      group.reset();
      std::this_thread::sleep_for(1s);
      return;
    }
    const auto start = Clock::now();
    const auto [small, members] = group->shrink(60s);
    require(Clock::now() - start < 30s, "waited for a rank that had left");
    require_ranks(members, {0, 2});
    use(*small);
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
}

TEST(Shrink, EndsTheCallsOfRanksThatWait) {
  const Endings endings = run_processes(2, [](shm::SharedGroup& group) {
    told(group, 0);
    if (group.rank() == 1) {
      std::this_thread::sleep_for(100ms);
    } else {
      const std::string said = end_of(group);
      require(said == "rank 1 could not be reached: it goes on in a smaller group: call shrink on every rank",
              said);
    }
    use(*group.shrink(30s).group);
  });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

TEST(Shrink, LeavesOutARankThatIsStoppedAndRefusesItWhenItWakes) {
  const Endings endings = run_processes(3, [](shm::SharedGroup& group) {
    const Ints pids = told(group, getpid());
    if (group.rank() == 1) {
      raise(SIGSTOP);
      try {
        group.shrink(30s);
      } catch (const shm::PeerLost& lost) {
        const std::string expected =
            "ranks 0 and 2 have gone on in a smaller group, since this rank did not answer in time: it "
            "cannot "
            "join them any more";
        require(lost.what() == expected, lost.what());
        return;
      }
      throw std::runtime_error("the late rank was not refused");
    }
    const auto [small, members] = group.shrink(1500ms);
    require_ranks(members, {0, 2});
    use(*small);
    if (small->rank() == 0) kill(static_cast<pid_t>(pids[1]), SIGCONT);
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
}

TEST(Shrink, WaitsForARankThatComesInTime) {
  const Endings endings = run_processes(3, [](shm::SharedGroup& group) {
    told(group, 0);
    if (group.rank() == 2) std::this_thread::sleep_for(500ms);
    require_ranks(group.shrink(60s).members, {0, 1, 2});
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
}

TEST(Shrink, ThatWasInterruptedCanBeRepeated) {
  const Endings endings = run_processes(3, [](shm::SharedGroup& group) {
    told(group, 0);
    if (group.rank() == 0) {
      shm::set_interrupt_check([] { throw std::domain_error("Ctrl-C"); });
      try {
        group.shrink(60s);
        throw std::runtime_error("it was not interrupted");
      } catch (const std::domain_error&) {
        shm::set_interrupt_check([] {});
      }
    } else {
      std::this_thread::sleep_for(500ms);
    }
    const auto [small, members] = group.shrink(60s);
    require_ranks(told(*small, group.rank()), {0, 1, 2});
    use(*small);
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
}

TEST(Shrink, InAChildOfForkIsRefusedAndEndsNothing) {
  const Endings endings = run_processes(2, [](shm::SharedGroup& group) {
    told(group, 0);
    const pid_t child = fork();
    if (child == 0) {
      int status = 1;
      try {
        group.shrink();
      } catch (const shm::WrongProcess&) {
        status = 0;
      }
      _exit(status);
    }
    int status = 0;
    waitpid(child, &status, 0);
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child was let in");
    use(group);
  });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

TEST(Shrink, WithANegativeTimeoutIsRefusedAndTheGroupGoesOn) {
  const Endings endings = run_processes(2, [](shm::SharedGroup& group) {
    try {
      group.shrink(-1ms);
    } catch (const std::invalid_argument& error) {
      require(error.what() == std::string("timeout=-1 ms is negative"), error.what());
      use(group);
      return;
    }
    throw std::runtime_error("it was not refused");
  });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

TEST(Shrink, OfAPartOfAGroupLeavesTheOtherPartAlone) {
  const Endings endings = run_unjoined(4, [](int64_t rank, const shm::Exchange& exchange) {
    const HostGroup world = HostGroup::join({.rank = rank, .size = 4, .exchange = exchange});
    const HostGroup part = world.split(rank == 0 ? 1 : 0);  // ranks 1, 2 and 3
    part.barrier();
    if (rank == 2) raise(SIGKILL);
    if (rank == 0) return part.barrier();
    try {
      for (;;) part.barrier();
    } catch (const std::runtime_error&) {
    }
    const HostGroup small = part.shrink(30s);
    Ints sum = {rank};
    small.all_reduce<int64_t>(sum, sum);
    require_ranks({small.size(), sum[0], small.rank()}, {2, 4, rank == 1 ? 0 : 1});
  });
  EXPECT_EQ(endings, (Endings{"", "", "signal 9", ""}));
}

TEST(Shrink, LeavesNoFilesMappingsOrMemoryBehind) {
  const Endings endings = run_unjoined(3, [](int64_t rank, const shm::Exchange& exchange) {
    const auto arena = shm::Arena::create(1 << 30);
    SharedGroupPtr group =
        shm::SharedGroup::join({.rank = rank, .size = 3, .exchange = exchange, .arena = arena}).group;
    require_nothing_left(*arena, [&] {
      group = group->shrink(60s).group;
      use(*group);
    });
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
}

// Shrinks until the group has these of the first group's ranks. A rank that dies late is lost in a later
// call.
void shrink_to(shm::SharedGroup& first, const Ints& wanted, std::chrono::milliseconds timeout) {
  Ints ranks(static_cast<size_t>(first.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  SharedGroupPtr group;
  while (ranks != wanted) {
    auto [small, members] = (group ? *group : first).shrink(timeout);
    Ints left;
    for (const int64_t member : members) left.push_back(ranks[static_cast<size_t>(member)]);
    ranks = left;
    group = small;
    try {
      require_ranks(told(*group, first.rank()), ranks);
      while (ranks != wanted) told(*group, 0);
    } catch (const shm::PeerLost&) {
    }
  }
  use(*group);
}

TEST(Shrink, SurvivesDeathsAtAnyMoment) {
  Dice dice;
  SCOPED_TRACE("SHARDWAY_SEED=" + std::to_string(dice.seed()));
  for (int64_t round = 0; round < tries(200); ++round) {
    const int64_t ranks = dice.between(int64_t{2}, int64_t{4});
    const int64_t first_dead = dice.between(int64_t{0}, ranks - 1);
    const int64_t second_dead = dice.between(int64_t{0}, ranks - 1);  // perhaps the same
    const bool has_survivor = ranks > 2 || first_dead == second_dead;
    const Ints dead = has_survivor ? Ints{first_dead, second_dead} : Ints{first_dead};
    const auto die_at = std::chrono::microseconds(dice.between(int64_t{0}, int64_t{6000}));
    Ints living;
    Endings expected;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const bool is_dead = std::find(dead.begin(), dead.end(), rank) != dead.end();
      if (!is_dead) living.push_back(rank);
      expected.emplace_back(is_dead ? "signal 9" : "");
    }
    const Endings endings = run_processes(ranks, [&](shm::SharedGroup& group) {
      told(group, 0);
      if (!expected[static_cast<size_t>(group.rank())].empty()) die_in(die_at);
      shrink_to(group, living, 60s);
    });
    ASSERT_EQ(endings, expected) << "round " << round << ": " << ranks << " ranks, " << text_of(dead)
                                 << " dead after " << die_at.count() << " us";
  }
}

// A rank stops in the middle and goes on after the others' timeout, or before. On a busy machine another may
// be late too. Every rank is in the group or is told that it is not, and those that are in it agree.
TEST(Shrink, AgreesOnARankThatStopsAtAnyMoment) {
  Dice dice;
  SCOPED_TRACE("SHARDWAY_SEED=" + std::to_string(dice.seed()));
  for (int64_t round = 0; round < tries(40); ++round) {
    const auto stop_at = std::chrono::microseconds(dice.between(int64_t{0}, int64_t{4000}));
    const auto stop_for = std::chrono::milliseconds(dice.between(int64_t{60}, int64_t{140}));
    const Endings endings = run_processes(3, [&](shm::SharedGroup& group) {
      const Ints pids = told(group, getpid());
      std::thread stops([&] {
        if (group.rank() != 0) return;
        std::this_thread::sleep_for(stop_at);
        kill(static_cast<pid_t>(pids[1]), SIGSTOP);
        std::this_thread::sleep_for(stop_for);
        kill(static_cast<pid_t>(pids[1]), SIGCONT);
      });
      std::string problem;
      try {
        const auto [small, members] = group.shrink(100ms);
        require_ranks(told(*small, group.rank()), members);
        use(*small);
      } catch (const shm::PeerLost& lost) {
        if (std::string(lost.what()).find("cannot join them any more") == std::string::npos)
          problem = lost.what();
      }
      if (group.rank() == 1)
        std::this_thread::sleep_for(200ms);  // its number must be its own until it is woken
      stops.join();
      require(problem.empty(), problem);
    });
    ASSERT_EQ(endings, (Endings{"", "", ""})) << "round " << round << ", stopped after " << stop_at.count()
                                              << " us for " << stop_for.count() << " ms";
  }
}

}  // namespace
}  // namespace shardway::testing
