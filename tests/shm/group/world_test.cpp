// Programs whose ranks find one another through their environment, and groups that are split.
#include <gtest/gtest.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <numeric>
#include <thread>

#include "rank_runner.h"
#include "shardway/shm.h"
#include "shm/join/abstract_socket.h"

namespace shardway::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Ints = std::vector<int64_t>;
using Environment = std::vector<std::pair<std::string, std::string>>;

constexpr std::array kLauncherVariables = {"SHARDWAY_JOB",
                                           "RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_WORLD_SIZE",
                                           "MASTER_PORT",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "PMI_JOBID",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "MPI_LOCALNRANKS",
                                           "PMIX_NAMESPACE",
                                           "PMIX_SERVER_TMPDIR",
                                           "TORCHELASTIC_RUN_ID",
                                           "TORCHELASTIC_RESTART_COUNT",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE"};

void be_launched_with(const Environment& environment) {
  for (const char* name : kLauncherVariables) unsetenv(name);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
}

// The ranks of the group by what each of them says.
Ints told(const HostGroup& group, int64_t mine) {
  Ints all(static_cast<size_t>(group.size()));
  group.all_gather_v<int64_t>(std::span(&mine, 1), all, Ints(static_cast<size_t>(group.size()), 1));
  return all;
}

Ints counted(int64_t ranks, int64_t first = 0) {
  Ints numbers(static_cast<size_t>(ranks));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

std::string text(int64_t number) { return std::to_string(number); }

const std::string kAdvice = ": give each of two jobs that run at once a name of its own in SHARDWAY_JOB";

// A name that only the processes of this test share.
std::string fresh_name() {
  static int count = 0;
  return text(getpid()) + "-" + text(++count);
}

using Launcher = Environment (*)(int64_t rank, int64_t ranks, const std::string& job);

Environment launched_by_shardway(int64_t rank, int64_t ranks, const std::string& job) {
  return {{"SHARDWAY_JOB", job},         {"RANK", text(rank)},
          {"WORLD_SIZE", text(ranks)},   {"LOCAL_WORLD_SIZE", text(ranks)},
          {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}};
}

Environment launched_by_torchrun(int64_t rank, int64_t ranks, const std::string& job) {
  return {{"TORCHELASTIC_RUN_ID", job}, {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"MASTER_PORT", "29500"},     {"RANK", text(rank)},
          {"WORLD_SIZE", text(ranks)},  {"LOCAL_WORLD_SIZE", text(ranks)}};
}

Environment launched_by_open_mpi(int64_t rank, int64_t ranks, const std::string& job) {
  return {{"PMIX_NAMESPACE", job},
          {"OMPI_COMM_WORLD_RANK", text(rank)},
          {"OMPI_COMM_WORLD_SIZE", text(ranks)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", text(ranks)}};
}

Environment launched_by_mpich(int64_t rank, int64_t ranks, const std::string& job) {
  return {{"PMI_JOBID", job},
          {"PMI_RANK", text(rank)},
          {"PMI_SIZE", text(ranks)},
          {"MPI_LOCALNRANKS", text(ranks)}};
}

Environment launched_by_hand(int64_t rank, int64_t ranks, const std::string& job) {
  const auto port = 1024 + std::hash<std::string>()(job) % 60000;
  return {{"MASTER_PORT", std::to_string(port)}, {"RANK", text(rank)}, {"WORLD_SIZE", text(ranks)}};
}

std::string port_of(const Environment& environment) { return environment[0].second; }

constexpr std::array<Launcher, 5> kLaunchers = {launched_by_shardway, launched_by_torchrun,
                                                launched_by_open_mpi, launched_by_mpich, launched_by_hand};

class Worlds : public ::testing::TestWithParam<int64_t> {};

TEST_P(Worlds, JoinFromTheEnvironmentOfEveryLauncher) {
  const int64_t n = GetParam();
  for (const Launcher launcher : kLaunchers) {
    const std::string job = fresh_name();
    const auto body = [&](int64_t rank, const shm::Exchange&) {
      be_launched_with(launcher(rank, n, job));
      const HostGroup first = HostGroup::join();
      const HostGroup second = HostGroup::join({.timeout = 20s});
      require(first.rank() == rank && first.size() == n, "another place in the world");
      require(told(first, rank) == counted(n), "another world");
      require(told(second, 10 + rank) == counted(n, 10), "another second world");
    };
    EXPECT_EQ(run_unjoined(n, body), Endings(static_cast<size_t>(n)));
  }
}

TEST_P(Worlds, TwoJobsAtOnceDoNotMeet) {
  const int64_t n = GetParam();
  const std::array jobs = {fresh_name(), fresh_name()};
  const auto body = [&](int64_t process, const shm::Exchange&) {
    const int64_t job = process % 2;
    be_launched_with(launched_by_shardway(process / 2, n, jobs[static_cast<size_t>(job)]));
    const HostGroup world = HostGroup::join();
    require(told(world, 100 * job + world.rank()) == counted(n, 100 * job), "a rank of the other job");
  };
  EXPECT_EQ(run_unjoined(2 * n, body), Endings(static_cast<size_t>(2 * n)));
}

// Two colors, odd and even, each in reverse order by key; then every rank alone, then all again.
TEST_P(Worlds, SplitByColorAndKey) {
  const int64_t n = GetParam();
  const auto body = [&](int64_t rank, const shm::Exchange& exchange) {
    const HostGroup world = HostGroup::join({.rank = rank, .size = n, .exchange = exchange});
    const HostGroup half = world.split(rank % 2, -rank);
    Ints expected;
    for (int64_t r = n - 1; r >= 0; --r) {
      if (r % 2 == rank % 2) expected.push_back(r);
    }
    require(told(half, rank) == expected, "another half");
    require(half.rank() == std::find(expected.begin(), expected.end(), rank) - expected.begin(),
            "another rank");
    require(told(world.split(rank), rank) == Ints{rank}, "not alone");
    require(told(half.split(7), rank) == expected, "another half of one color");
    require(told(world.split(5), rank) == counted(n), "equal keys are ordered by rank");
    require(told(world, rank) == counted(n), "the world is not what it was");
  };
  EXPECT_EQ(run_unjoined(n, body), Endings(static_cast<size_t>(n)));
}

INSTANTIATE_TEST_SUITE_P(, Worlds, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return text(info.param) + "ranks"; });

TEST(World, WithoutALauncherAProgramIsItsOnlyRank) {
  const auto body = [](int64_t, const shm::Exchange&) {
    be_launched_with({});
    const HostGroup world = HostGroup::join();
    require(world.rank() == 0 && world.size() == 1, "not alone");
    require(told(world, 4) == Ints{4}, "another world");
  };
  EXPECT_EQ(run_unjoined(1, body), Endings(1));
}

std::string refusal_of(const Environment& environment) {
  return run_unjoined(1, [&](int64_t, const shm::Exchange&) {
    be_launched_with(environment);
    HostGroup::join({.timeout = 100ms});
  })[0];
}

TEST(World, AnEnvironmentWithoutSenseIsRefusedByTheNameOfItsVariable) {
  const std::string job = fresh_name();
  EXPECT_EQ(refusal_of({{"RANK", "0"}, {"MASTER_PORT", "1"}}),
            "join: WORLD_SIZE is not set, as torchrun would");
  EXPECT_EQ(refusal_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
            "join: MASTER_PORT is not set, as torchrun would");
  EXPECT_EQ(refusal_of({{"SHARDWAY_JOB", job}, {"RANK", "one"}, {"WORLD_SIZE", "2"}}),
            "join: RANK=one is not a number");
  EXPECT_EQ(refusal_of({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}}),
            "join: OMPI_COMM_WORLD_RANK=2 is not one of 2 ranks");
  EXPECT_EQ(refusal_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}), "join: PMI_SIZE=0 is less than 1");
}

TEST(World, RanksOfSeveralHostsAreToldWhatToUseInstead) {
  EXPECT_EQ(
      refusal_of({{"TORCHELASTIC_RUN_ID", fresh_name()},
                  {"RANK", "5"},
                  {"WORLD_SIZE", "8"},
                  {"LOCAL_WORLD_SIZE", "4"}}),
      "join: torchrun started 4 of 8 ranks on this host, and ranks of several hosts share no memory: make a "
      "Group of a c10d process group instead (rank 5)");
}

TEST(World, ARankThatDoesNotComeIsNamed) {
  const std::string job = fresh_name();
  EXPECT_EQ(refusal_of(launched_by_shardway(1, 2, job)),
            "rank 0 could not be reached: no such rank of this job joined on this host (shardway launch)");
  const auto body = [&](int64_t process, const shm::Exchange&) {
    be_launched_with(launched_by_shardway(2 * process, 3, job));
    HostGroup::join({.timeout = process == 0 ? 500ms : 20s});
  };
  const Endings endings = run_unjoined(2, body);
  EXPECT_EQ(endings[0], "rank 1 could not be reached: it did not answer in time");
  EXPECT_NE(endings[1].find("rank 0 could not be reached: it ended before all ranks had joined"),
            std::string::npos)
      << endings[1];
}

TEST(World, RanksThatDisagreeAllHearOfIt) {
  const std::string job = fresh_name();
  const auto sizes = [&](int64_t rank, const shm::Exchange&) {
    be_launched_with(launched_by_shardway(rank, rank == 1 ? 4 : 3, job));
    HostGroup::join({.timeout = 10s});
  };
  EXPECT_EQ(run_unjoined(3, sizes),
            Endings(3, "join: ranks disagree on the number of ranks: 3 on rank 0, 4 on rank 1"));
  const std::string other = fresh_name();
  const auto twice = [&](int64_t rank, const shm::Exchange&) {
    be_launched_with(launched_by_shardway(rank == 2 ? 1 : rank, 3, other));
    HostGroup::join({.timeout = 10s});
  };
  EXPECT_EQ(run_unjoined(3, twice), Endings(3, "join: two processes are rank 1 (shardway launch)" + kAdvice));
}

TEST(World, TwoRanksZeroAndTheRanksThatCameHearOfEachOther) {
  const std::string job = fresh_name();
  const auto body = [&](int64_t process, const shm::Exchange&) {
    be_launched_with(launched_by_shardway(process == 2 ? 1 : 0, 3, job));
    HostGroup::join({.timeout = 20s});
  };
  EXPECT_EQ(run_unjoined(3, body), Endings(3, "join: two processes are rank 0 (shardway launch)" + kAdvice));
}

// The first job's rank 1 is late: the other job's would take its place.
TEST(World, TwoJobsStartedByHandUnderOnePortAreToldSoOnEveryRank) {
  const std::string job = fresh_name();
  const Environment environment = launched_by_hand(0, 2, job);
  const std::array<int64_t, 4> ranks = {0, 1, 0, 1};
  const std::array delays = {0ms, 100ms, 250ms, 600ms};
  const auto body = [&](int64_t process, const shm::Exchange&) {
    std::this_thread::sleep_for(delays[static_cast<size_t>(process)]);
    be_launched_with(launched_by_hand(ranks[static_cast<size_t>(process)], 2, job));
    HostGroup::join({.timeout = 20s});
  };
  const auto start = Clock::now();
  for (const std::string& ending : run_unjoined(4, body))
    EXPECT_EQ(ending, "join: two processes are rank 0 (started by hand, MASTER_PORT=" + port_of(environment) +
                          ")" + kAdvice);
  EXPECT_LT(Clock::now() - start, 10s);
}

TEST(World, WhoComesWhenTheRanksHaveMetIsToldAtOnce) {
  const std::string job = fresh_name();
  const auto body = [&](int64_t process, const shm::Exchange&) {
    if (process >= 2) std::this_thread::sleep_for(1200ms);
    be_launched_with(launched_by_hand(process % 2, 2, job));
    const HostGroup world = HostGroup::join({.timeout = 20s});
    require(told(world, process) == counted(2), "a rank of the other job");
    if (process == 0) std::this_thread::sleep_for(2s);  // it is still at work
  };
  const auto start = Clock::now();
  const Endings endings = run_unjoined(4, body);
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_EQ(endings[0], "");
  EXPECT_EQ(endings[1], "");
  const std::string where =
      " (started by hand, MASTER_PORT=" + port_of(launched_by_hand(0, 2, job)) + ")" + kAdvice;
  EXPECT_EQ(endings[2], "join: another process is rank 0 of this job, and its ranks have met" + where);
  EXPECT_EQ(endings[3],
            "join: the ranks of this job have met, and this process, rank 1, was not among them" + where);
}

// Connections to all sockets of jobs that listen on this host, once there is one of that many.
std::vector<shm::File> silent_calls(int64_t count) {
  std::vector<shm::File> calls;
  for (int look = 0; look < 2000 && calls.empty(); ++look) {
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);) {
      const size_t name = line.find("@shardway-job-");
      if (name == std::string::npos) continue;
      try {
        for (int64_t i = 0; i < count; ++i) calls.push_back(shm::connect_to(line.substr(name + 1), 1s));
      } catch (const std::system_error&) {  // it has gone meanwhile
      }
    }
    std::this_thread::sleep_for(1ms);
  }
  return calls;
}

TEST(World, CallersThatStaySilentCostNoJoinASecond) {
  const std::string job = fresh_name();
  const auto body = [&](int64_t process, const ExchangeAmong& among) {
    std::vector<shm::File> calls;
    if (process == 2) calls = silent_calls(5);
    if (process != 0) among({1, 2})({});  // rank 1 comes when they have called
    be_launched_with(launched_by_shardway(process, 2, job));
    const auto start = Clock::now();
    if (process != 2) {
      require(told(HostGroup::join({.timeout = 20s}), process) == counted(2), "another world");
      require(process == 0 || Clock::now() - start < 1s, "the silent ones were waited for");
    }
    if (process != 0) among({1, 2})({});  // until then they stay
  };
  EXPECT_EQ(run_processes_apart(3, body), Endings(3));
}

// One signal, after which nothing comes.
TEST(World, ASignalMakesNoJoinForgetItsTimeout) {
  const auto body = [&](int64_t, const shm::Exchange&) {
    be_launched_with(launched_by_shardway(0, 2, fresh_name()));
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    const itimerval timer{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 100'000}};
    setitimer(ITIMER_REAL, &timer, nullptr);
    const auto start = Clock::now();
    try {
      HostGroup::join({.timeout = 400ms});
    } catch (const std::runtime_error&) {
      require(Clock::now() - start < 2s, "it took too long");
      throw;
    }
  };
  EXPECT_EQ(run_unjoined(1, body), Endings{"rank 1 could not be reached: it did not answer in time"});
}

// Descriptors until there is none left.
std::vector<shm::File> every_descriptor() {
  std::vector<shm::File> files;
  for (;;) {
    shm::File file(dup(STDIN_FILENO));
    if (!file) return files;
    files.push_back(std::move(file));
  }
}

TEST(World, ForWantOfDescriptorsAJoinWaitsWithoutWork) {
  const std::string job = fresh_name();
  const auto body = [&](int64_t rank, const shm::Exchange&) {
    be_launched_with(launched_by_shardway(rank, 2, job));
    std::jthread freeing;
    const auto start = std::clock();
    if (rank == 0) {
      auto files = std::make_shared<std::vector<shm::File>>(every_descriptor());
      files->pop_back();  // for the listener
      freeing = std::jthread([files] {
        std::this_thread::sleep_for(800ms);
        files->clear();
      });
    }
    const HostGroup world = HostGroup::join({.timeout = 20s});
    const auto worked = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    require(told(world, rank) == counted(2), "another world");
    require(rank != 0 || worked < 0.2, "it worked for " + std::to_string(worked) + " s");
  };
  EXPECT_EQ(run_unjoined(2, body), Endings(2));
}

TEST(World, OptionsWithoutSenseAreRefused) {
  const auto refusal = [](const JoinOptions& options) {
    try {
      HostGroup::join(options);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Exchange exchange = [](std::span<const std::byte> mine) {
    return std::vector<std::byte>(mine.begin(), mine.end());
  };
  EXPECT_EQ(refusal({.rank = 0, .size = 2}),
            "join: rank, size and exchange go together, and only some of them are given");
  EXPECT_EQ(refusal({.rank = 2, .size = 2, .exchange = exchange}), "join: rank=2 is not one of 2 ranks");
  EXPECT_EQ(refusal({.rank = 0, .size = 0, .exchange = exchange}), "join: size=0 is less than 1");
}

TEST(World, ANegativeColorIsRefusedOnEveryRankAndTheGroupStaysUsable) {
  const auto body = [](int64_t rank, const shm::Exchange& exchange) {
    const HostGroup world = HostGroup::join({.rank = rank, .size = 3, .exchange = exchange});
    std::string found;
    try {
      world.split(rank == 1 ? -1 : 0);
    } catch (const std::invalid_argument& error) {
      found = error.what();
    }
    require(found == "split: color=-1 is negative (rank 1)", found);
    require(told(world, rank) == counted(3), "the world is not what it was");
  };
  EXPECT_EQ(run_unjoined(3, body), Endings(3));
}

}  // namespace
}  // namespace shardway::testing
