// How groups are tuned, and what they say of it.

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "rank_runner.h"
#include "scenario.h"
#include "shardway/shm.h"
#include "shm/group/tune.h"
#include "shm/group/tuning_defaults.h"
#include "shm/memory/process.h"

namespace shardway::testing {
namespace {

TEST(TuningDefaults, AreThoseOnRecord) {
  using shm::Processor;
  for (const bool shares_cache : {true, false}) {
    EXPECT_TRUE(shm::default_for(Processor::amd_zen, shares_cache).hands_back);
    EXPECT_TRUE(shm::default_for(Processor::amd_zen, shares_cache).swaps);
    EXPECT_FALSE(shm::default_for(Processor::intel, shares_cache).hands_back);
    EXPECT_TRUE(shm::default_for(Processor::intel, shares_cache).swaps);
  }
}

TEST(TuningDefaults, AreSafeWhereNothingIsOnRecord) {
  using shm::Processor;
  for (const Processor processor : {Processor::arm, Processor::unknown, static_cast<Processor>(77)}) {
    for (const bool shares_cache : {true, false}) {
      EXPECT_TRUE(shm::default_for(processor, shares_cache).hands_back);
      EXPECT_TRUE(shm::default_for(processor, shares_cache).swaps);
    }
  }
}

// The one record of a process that has made one kind of group.
TunedGroups only_record() {
  const TuningStats stats = tuning_stats();
  require(stats.groups.size() == 1, "there are " + std::to_string(stats.groups.size()) + " records");
  return stats.groups.front();
}

// Ranks with these values of SHARDWAY_TUNING, by rank; null: none.
Endings run_pinned(const std::vector<const char*>& values,
                   const std::function<void(int64_t rank, const shm::Exchange&)>& body) {
  return run_unjoined(static_cast<int64_t>(values.size()), [&](int64_t rank, const shm::Exchange& exchange) {
    const char* value = values[static_cast<size_t>(rank)];
    if (value == nullptr) {
      unsetenv("SHARDWAY_TUNING");
    } else {
      setenv("SHARDWAY_TUNING", value, 1);
    }
    body(rank, exchange);
  });
}

std::shared_ptr<shm::SharedGroup> made(int64_t rank, int64_t size, const shm::Exchange& exchange) {
  const auto joined = shm::SharedGroup::join(
      {.rank = rank, .size = size, .exchange = exchange, .arena = shm::Arena::create(1 << 26)});
  require(joined.group != nullptr, joined.why_not);
  return joined.group;
}

// 80 KB of every rank to every rank, through rings.
Scenario rings_of(int64_t ranks) {
  return gather({0}, 0, std::vector<int64_t>(static_cast<size_t>(ranks), 20'000));
}

class Tunings : public ::testing::TestWithParam<int64_t> {};

TEST_P(Tunings, DefaultsAreTheSameInEveryGroupAndSayWhereTheyComeFrom) {
  const std::vector<const char*> values(static_cast<size_t>(GetParam()));
  const auto body = [](int64_t rank, const shm::Exchange& exchange) {
    const auto size = GetParam();
    for (int group = 0; group < 3; ++group) run_scenario(*made(rank, size, exchange), rings_of(size));
    if (size == 1) return require(tuning_stats().groups.empty(), "one rank is tuned");
    const TunedGroups record = only_record();
    const cpu_set_t cores = shm::allowed_cores();
    const bool has_cores = CPU_COUNT(&cores) >= size;
    require(record.ranks == size && record.groups == 3, "another count");
    require(record.processor == tuning_stats().processor, "another processor");
    require(has_cores || record.hand_back, "ranks that share cores hand back");
    require(record.hand_back_from.starts_with("default for "), record.hand_back_from);
    require(record.swap_from.starts_with(size == 2 ? "default for " : "only two ranks"), record.swap_from);
  };
  EXPECT_EQ(run_pinned(values, body), Endings(values.size()));
}

TEST_P(Tunings, PinsCountBeforeDefaults) {
  for (const bool swap : {false, true}) {
    for (const bool hand_back : {false, true}) {
      const std::string text =
          "swap=" + std::to_string(int{swap}) + ",hand_back=" + std::to_string(int{hand_back});
      const std::vector<const char*> values(static_cast<size_t>(GetParam()), text.c_str());
      const auto body = [&](int64_t rank, const shm::Exchange& exchange) {
        const int64_t size = GetParam();
        run_scenario(*made(rank, size, exchange), rings_of(size), 3);
        if (size == 1) return;
        const TunedGroups record = only_record();
        require(record.hand_back == hand_back && record.hand_back_from == "SHARDWAY_TUNING", "no hand_back");
        require(record.swap == (swap && size == 2), "another swap");
        require((record.swap_from == "SHARDWAY_TUNING") == (size == 2), record.swap_from);
      };
      EXPECT_EQ(run_pinned(values, body), Endings(values.size())) << text;
    }
  }
}

TEST_P(Tunings, ThatDifferAreTheSameErrorOnEveryRank) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank agrees with itself";
  std::vector<const char*> values(static_cast<size_t>(GetParam()), "hand_back=0");
  values.back() = "swap=1";
  const auto body = [](int64_t rank, const shm::Exchange& exchange) {
    try {
      made(rank, GetParam(), exchange);
    } catch (const std::invalid_argument& error) {
      require(error.what() == "SHARDWAY_TUNING pins hand_back=0 on rank 0 and swap=1 on rank " +
                                  std::to_string(GetParam() - 1) + "; set it alike on every rank",
              error.what());
      return;
    }
    throw std::runtime_error("there is a group");
  };
  EXPECT_EQ(run_pinned(values, body), Endings(values.size()));
}

TEST_P(Tunings, ThatAreInvalidOnOneRankAreAnErrorOnEveryRank) {
  std::vector<const char*> values(static_cast<size_t>(GetParam()), "");
  values.back() = "swap=maybe";
  const auto body = [](int64_t rank, const shm::Exchange& exchange) {
    try {
      made(rank, GetParam(), exchange);
    } catch (const std::invalid_argument& error) {
      const std::string text = error.what();
      require(text.starts_with("SHARDWAY_TUNING=swap=maybe: \"swap=maybe\" does not end in =0 or =1"), text);
      require(text.ends_with("on rank " + std::to_string(GetParam() - 1)), text);
      return;
    }
    throw std::runtime_error("there is a group");
  };
  EXPECT_EQ(run_pinned(values, body), Endings(values.size()));
}

bool have_cores(int64_t ranks) {
  const cpu_set_t cores = shm::allowed_cores();
  return CPU_COUNT(&cores) >= ranks;
}

// The first rank has measured one thing, the others another.
shm::TuningPins measured_off(int64_t) { return {.swap = 0, .hand_back = 0}; }
shm::TuningPins measured_on(int64_t) { return {.swap = 1, .hand_back = 1}; }

TEST_P(Tunings, MeasuredOnTheFirstRankCountBeforeDefaults) {
  const std::vector<const char*> values(static_cast<size_t>(GetParam()));
  const auto body = [](int64_t rank, const shm::Exchange& exchange) {
    const int64_t size = GetParam();
    shm::ask_for_measured_pins(rank == 0 ? &measured_off : &measured_on);
    run_scenario(*made(rank, size, exchange), rings_of(size), 3);
    if (size == 1) return;
    const TunedGroups record = only_record();
    if (!have_cores(size))
      return require(record.hand_back_from == "default for ranks that share cores", record.hand_back_from);
    require(!record.hand_back && record.hand_back_from == "the topology file", record.hand_back_from);
    require(!record.swap, "it swaps");
    require(record.swap_from == (size == 2 ? "the topology file" : "only two ranks swap"), record.swap_from);
  };
  EXPECT_EQ(run_pinned(values, body), Endings(values.size()));
}

TEST_P(Tunings, PinsCountBeforeWhatWasMeasured) {
  const std::vector<const char*> values(static_cast<size_t>(GetParam()), "hand_back=1");
  const auto body = [](int64_t rank, const shm::Exchange& exchange) {
    const int64_t size = GetParam();
    shm::ask_for_measured_pins(&measured_off);
    run_scenario(*made(rank, size, exchange), rings_of(size));
    if (size == 1) return;
    const TunedGroups record = only_record();
    require(record.hand_back && record.hand_back_from == "SHARDWAY_TUNING", record.hand_back_from);
    require(!record.swap, "it swaps");
  };
  EXPECT_EQ(run_pinned(values, body), Endings(values.size()));
}

// Ranks of another color wait for these.
TEST(TuningsOfSplits, ThatDifferInOneColorAreAnErrorInAll) {
  const std::vector<const char*> values(4, nullptr);
  const auto body = [](int64_t rank, const shm::Exchange& exchange) {
    const HostGroup world = HostGroup::join({.rank = rank, .size = 4, .exchange = exchange});
    if (rank == 3) setenv("SHARDWAY_TUNING", "swap=0", 1);
    try {
      (void)world.split(rank / 2);
    } catch (const std::invalid_argument& error) {
      const std::string text = error.what();
      require(text.find("color 1") != std::string::npos && text.find("swap=0 on rank 1") != std::string::npos,
              text);
      return;
    }
    throw std::runtime_error("there is a group");
  };
  EXPECT_EQ(run_pinned(values, body), Endings(4));
}

INSTANTIATE_TEST_SUITE_P(, Tunings, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

}  // namespace
}  // namespace shardway::testing
