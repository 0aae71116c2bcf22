#include "shm/calls/all_reduce.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <numeric>
#include <span>
#include <stdexcept>

#include "rank_runner.h"
#include "shardway/shm.h"

namespace shardway::testing {
namespace {

constexpr std::array<int64_t, 8> kCounts = {0, 1, 300, 2'049, 4'096, 20'001, 400'000, 3'500'003};

Endings run(int64_t ranks, const std::function<void(const HostGroup&)>& body) {
  return run_unjoined(ranks, [&](int64_t rank, const shm::Exchange& exchange) {
    body(HostGroup::join({.rank = rank, .size = ranks, .exchange = exchange}));
  });
}

class AllReduces : public ::testing::TestWithParam<int64_t> {};

int32_t element(int64_t rank, int64_t i) { return static_cast<int32_t>(1'003 * (rank + 1) + i % 1'000); }

int32_t sum_at(int64_t ranks, int64_t i) {
  int32_t sum = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) sum += element(rank, i);
  return sum;
}

// Memory where peers can read it, or not.
std::shared_ptr<int32_t[]> memory_for(const HostGroup& group, int64_t count, bool shared) {
  if (shared) return group.allocate<int32_t>(count);
  return std::make_shared<int32_t[]>(static_cast<size_t>(count));
}

void check_all_reduce(const HostGroup& group, int64_t count, bool shared, bool in_place) {
  const auto x = memory_for(group, count, shared);
  const auto other = memory_for(group, count, shared);
  for (int64_t i = 0; i < count; ++i) x[i] = element(group.rank(), i);
  int32_t* out = in_place ? x.get() : other.get();
  const auto n = static_cast<size_t>(count);
  group.all_reduce<int32_t>({x.get(), n}, {out, n});
  for (int64_t i = 0; i < count; ++i) require(out[i] == sum_at(group.size(), i), "another sum");
  for (int64_t i = 0; i < count && !in_place; ++i)
    require(x[i] == element(group.rank(), i), "the input changed");
}

TEST_P(AllReduces, AllReduceOfMemoryOfAllKindsGivesTheSumEverywhere) {
  const auto body = [](const HostGroup& group) {
    for (const int64_t count : kCounts) {
      for (const int64_t parity : {0, 1, 2}) {
        const bool shared = parity == 2 || group.rank() % 2 == parity;
        check_all_reduce(group, count, shared, false);
        check_all_reduce(group, count, shared, true);
        check_all_reduce(group, count, shared, group.rank() == 0);
      }
    }
  };
  EXPECT_EQ(run(GetParam(), body), Endings(static_cast<size_t>(GetParam())));
}

void check_in_group(shm::SharedGroup& group, int64_t count, bool in_place) {
  std::vector<int32_t> x(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) x[static_cast<size_t>(i)] = element(group.rank(), i);
  const std::vector<int32_t> before = x;
  std::vector<int32_t> other(x.size());
  std::vector<int32_t>& out = in_place ? x : other;
  const uint64_t calls = group.calls();
  group.run(shm::AllReduce{.input = std::as_bytes(std::span(x)).data(),
                           .output = std::as_writable_bytes(std::span(out)).data(),
                           .bytes = count * int64_t{sizeof(int32_t)},
                           .how = {.element = shm::Element::i32}});
  require(group.calls() == calls + 1, "the ranks met again");
  for (int64_t i = 0; i < count; ++i)
    require(out[static_cast<size_t>(i)] == sum_at(group.size(), i), "another sum");
  require(in_place || x == before, "the input changed");
}

// There and back through the slots, or there alone; and ranks as threads, whose accesses can be watched.
TEST_P(AllReduces, EveryWayGivesTheSame) {
  for (const shm::Tuning& tuning :
       {shm::Tuning{}, shm::Tuning{.inline_bytes = 0}, shm::Tuning{.shuttles = false},
        shm::Tuning{.inline_bytes = 0, .shuttles = false},
        shm::Tuning{.shuttles = false, .hands_back = true}}) {
    const auto body = [](shm::SharedGroup& group) {
      for (const int64_t count : kCounts) {
        for (const bool in_place : {false, true}) check_in_group(group, count, in_place);
      }
    };
    EXPECT_NO_THROW(run_threads(GetParam(), body, {.tuning = tuning}));
    EXPECT_EQ(run_processes(GetParam(), body, {.tuning = tuning}), Endings(static_cast<size_t>(GetParam())));
  }
}

// 2^24 + 1 is 2^24 in f32: only one order of the addends gives this result.
TEST_P(AllReduces, AllReduceTakesAddendsInRankOrderAtEverySize) {
  const auto body = [](const HostGroup& group) {
    const float mine = group.rank() == 0 ? 0x1p24F : 1.0F;
    for (const int64_t count : kCounts) {
      std::vector<float> x(static_cast<size_t>(count), mine);
      group.all_reduce<float>(x, x);
      require(x == std::vector<float>(x.size(), 0x1p24F), "another order");
    }
  };
  EXPECT_EQ(run(GetParam(), body), Endings(static_cast<size_t>(GetParam())));
}

TEST_P(AllReduces, BroadcastGivesTheRootsMemoryToAll) {
  const auto body = [](const HostGroup& group) {
    for (const int64_t count : kCounts) {
      for (int64_t root = 0; root < group.size(); ++root) {
        const auto x = memory_for(group, count, (root + group.rank()) % 2 == 0);
        for (int64_t i = 0; i < count; ++i) x[i] = element(group.rank(), i);
        group.broadcast<int32_t>({x.get(), static_cast<size_t>(count)}, root);
        for (int64_t i = 0; i < count; ++i) require(x[i] == element(root, i), "another rank's");
      }
    }
  };
  EXPECT_EQ(run(GetParam(), body), Endings(static_cast<size_t>(GetParam())));
}

TEST_P(AllReduces, NobodyPassesABarrierBeforeAllHaveCome) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* arrivals = new (page) std::atomic<int64_t>(0);
  const auto body = [arrivals](const HostGroup& group) {
    for (int64_t round = 1; round <= 200; ++round) {
      arrivals->fetch_add(1);
      group.barrier();
      require(arrivals->load() >= round * group.size(), "too early");
    }
  };
  EXPECT_EQ(run(GetParam(), body), Endings(static_cast<size_t>(GetParam())));
  munmap(page, 4096);
}

TEST_P(AllReduces, RanksWithOtherCountsAreToldAndNothingIsWritten) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank agrees with itself";
  for (const size_t count : {size_t{10}, size_t{10'000}, size_t{40'000}}) {
    const auto body = [count](const HostGroup& group) {
      const std::vector<int32_t> x(group.rank() == 1 ? count - 1 : count, 3);
      std::vector<int32_t> out(x.size(), 7);
      bool failed = false;
      try {
        group.all_reduce<int32_t>(x, out);
      } catch (const std::runtime_error&) {
        failed = true;
      }
      require(failed, "garbage was taken");
      require(out == std::vector<int32_t>(out.size(), 7), "the output was written");
    };
    EXPECT_EQ(run(GetParam(), body), Endings(static_cast<size_t>(GetParam())));
  }
}

TEST_P(AllReduces, WhatCannotBeIsRefusedBeforeAnybodyWaits) {
  const auto body = [](const HostGroup& group) {
    const auto refuses = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const std::invalid_argument&) {
        return true;
      }
      return false;
    };
    std::vector<float> x(4);
    require(refuses([&] { group.all_reduce<float>(x, std::span(x).first(3)); }), "another length");
    require(refuses([&] { group.all_reduce<float>(x, x, Combination::bor); }), "bits of f32");
    require(refuses([&] { group.broadcast<float>(x, group.size()); }), "a root past the ranks");
    require(refuses([&] { group.broadcast<float>(x, -1); }), "a negative root");
  };
  EXPECT_EQ(run(GetParam(), body), Endings(static_cast<size_t>(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(, AllReduces, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

}  // namespace
}  // namespace shardway::testing
