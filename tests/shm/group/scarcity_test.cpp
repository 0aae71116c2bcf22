// Ranks that lack something, and ranks that want a lot.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <optional>

#include "effort.h"
#include "rank_runner.h"
#include "scenario.h"
#include "shardway/shm.h"
#include "shm/board/retired.h"
#include "shm/memory/arena.h"

namespace shardway::testing {
namespace {

using namespace std::chrono_literals;

void limit_file_size(rlim_t bytes) {
  const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
  setrlimit(RLIMIT_FSIZE, &limit);
}

// The kernel has a signal for files that grow past the limit, which ends the process.
TEST(Scarcity, AFileSizeLimitIsAReasonAndNoSignal) {
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{4096}, rlim_t{1} << 20}) {
    const Endings endings = run_unjoined(2, [&](int64_t rank, const shm::Exchange& exchange) {
      std::signal(SIGXFSZ, SIG_DFL);
      if (rank == 0) limit_file_size(bytes);
      const auto joined = shm::SharedGroup::join({.rank = rank, .size = 2, .exchange = exchange});
      require(!joined.group && !joined.why_not.empty(), "it joined");
    });
    EXPECT_EQ(endings, (Endings{"", ""})) << bytes;
  }
}

int64_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST(Scarcity, SixtyFourGroupsAtOnce) {
  constexpr int kGroups = 64;
  const Endings endings = run_unjoined(3, [](int64_t rank, const shm::Exchange& exchange) {
    std::vector<std::shared_ptr<shm::SharedGroup>> groups;
    int64_t after_the_first = 0;
    for (int i = 0; i < kGroups; ++i) {
      auto joined = shm::SharedGroup::join({.rank = rank, .size = 3, .exchange = exchange, .timeout = 60s});
      require(joined.group != nullptr, joined.why_not);
      groups.push_back(std::move(joined.group));
      if (i == 0) after_the_first = open_descriptors();
    }
    require(open_descriptors() == after_the_first, "a group keeps a descriptor");
    for (int times = 0; times < 3; ++times) {
      for (const auto& group : groups) run_scenario(*group, gather({0}, 0, {20, 30'000, 0}));
    }
    groups.clear();
    exchange(std::as_bytes(std::span(&rank, 1)));
    shm::sweep_retired();
    require(shm::Arena::stats_of_process().in_use_bytes == 0, "a group left something in the arena");
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
}

TEST(Scarcity, AMillionSmallCalls) {
  const Endings endings = run_unjoined(2, [](int64_t rank, const shm::Exchange& exchange) {
    const HostGroup group = HostGroup::join({.rank = rank, .size = 2, .exchange = exchange});
    const int64_t before = open_descriptors();
    const int64_t held = shm::Arena::stats_of_process().in_use_bytes;
    std::array<int64_t, 1> sum{};
    for (int64_t i = 0; i < tries(1'000'000); ++i) {
      const std::array<int64_t, 1> mine{i + rank};
      group.all_reduce<int64_t>(mine, sum);
      require(sum[0] == 2 * i + 1, "another sum in call " + std::to_string(i));
    }
    require(open_descriptors() == before, "calls open descriptors");
    require(shm::Arena::stats_of_process().in_use_bytes == held, "calls keep memory");
  });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

}  // namespace
}  // namespace shardway::testing
