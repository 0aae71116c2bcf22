#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <numeric>

#include "rank_runner.h"
#include "shardway/shm.h"

namespace shardway::testing {
namespace {

using Ints = std::vector<int64_t>;

Endings run(int64_t ranks, const std::function<void(const HostGroup&)>& body) {
  return run_unjoined(ranks, [&](int64_t rank, const shm::Exchange& exchange) {
    body(HostGroup::join({.rank = rank, .size = ranks, .exchange = exchange}));
  });
}

class HostGroups : public ::testing::TestWithParam<int64_t> {};

// Rank r has r + 1 numbers: r, r, r ...
TEST_P(HostGroups, GatherScatterAndExchange) {
  const int64_t n = GetParam();
  const auto body = [n](const HostGroup& group) {
    Ints sizes(static_cast<size_t>(n));
    std::iota(sizes.begin(), sizes.end(), 1);
    const std::vector<float> mine(static_cast<size_t>(group.rank() + 1), static_cast<float>(group.rank()));
    std::vector<float> all(static_cast<size_t>(n * (n + 1) / 2));
    group.all_gather_v<float>(mine, all, sizes);
    std::vector<float> expected;
    for (int64_t r = 0; r < n; ++r)
      expected.insert(expected.end(), static_cast<size_t>(r + 1), static_cast<float>(r));
    require(all == expected, "another gather");

    std::vector<float> sum(mine.size());
    group.reduce_scatter_v<float>(all, sum, sizes);
    for (const float value : sum) require(value == static_cast<float>(n * group.rank()), "another sum");
    group.reduce_scatter_v<float>(all, sum, sizes, Combination::avg);
    for (const float value : sum) require(value == static_cast<float>(group.rank()), "another mean");

    const Ints one(static_cast<size_t>(n), 1);
    std::vector<int16_t> sent(static_cast<size_t>(n));
    std::iota(sent.begin(), sent.end(), static_cast<int16_t>(10 * group.rank()));
    std::vector<int16_t> received(static_cast<size_t>(n));
    group.all_to_all_v<int16_t>(sent, one, received, one);
    for (size_t r = 0; r < received.size(); ++r)
      require(received[r] == static_cast<int16_t>(10 * static_cast<int64_t>(r) + group.rank()),
              "another exchange");
    group.reduce_scatter_v<int16_t>(sent, std::span(received).first(1), one, Combination::bor);
  };
  EXPECT_EQ(run(n, body), Endings(static_cast<size_t>(n)));
}

TEST_P(HostGroups, SharedMemoryIsSentFromWhereItLies) {
  const int64_t n = GetParam();
  const auto body = [n](const HostGroup& group) {
    constexpr int64_t kCount = 100'000;
    const auto memory = group.allocate<double>(kCount);
    std::fill_n(memory.get(), kCount, static_cast<double>(group.rank()));
    std::vector<double> all(static_cast<size_t>(n * kCount));
    group.all_gather_v<double>({memory.get(), kCount}, all, Ints(static_cast<size_t>(n), kCount));
    for (int64_t r = 0; r < n; ++r)
      require(all[static_cast<size_t>(r * kCount + 7)] == static_cast<double>(r), "another gather");
  };
  EXPECT_EQ(run(n, body), Endings(static_cast<size_t>(n)));
}

int32_t element(int64_t rank, int64_t i) { return static_cast<int32_t>(1'000'003 * rank + i); }

// What a rank has, in memory of either kind.
std::shared_ptr<int32_t[]> numbers(const HostGroup& group, int64_t count, bool shared) {
  auto memory = shared ? group.allocate<int32_t>(count)
                       : std::shared_ptr<int32_t[]>(new int32_t[static_cast<size_t>(count)]);
  for (int64_t i = 0; i < count; ++i) memory[i] = element(group.rank(), i);
  return memory;
}

int64_t total_of(const Ints& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }

void check_gather(const HostGroup& group, const Ints& sizes, bool shared) {
  const int64_t own = sizes[static_cast<size_t>(group.rank())];
  const auto mine = numbers(group, own, shared);
  std::vector<int32_t> all(static_cast<size_t>(total_of(sizes)));
  group.all_gather_v<int32_t>({mine.get(), static_cast<size_t>(own)}, all, sizes);
  size_t next = 0;
  for (int64_t r = 0; r < group.size(); ++r) {
    for (int64_t i = 0; i < sizes[static_cast<size_t>(r)]; ++i)
      require(all[next++] == element(r, i), "another gather");
  }
}

void check_scatter(const HostGroup& group, const Ints& sizes, bool shared) {
  const auto own = static_cast<size_t>(group.rank());
  const int64_t total = total_of(sizes);
  const auto x = numbers(group, total, shared);
  std::vector<int32_t> sum(static_cast<size_t>(sizes[own]));
  group.reduce_scatter_v<int32_t>({x.get(), static_cast<size_t>(total)}, sum, sizes);
  const int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + group.rank(), int64_t{0});
  for (size_t i = 0; i < sum.size(); ++i) {
    int32_t expected = 0;
    for (int64_t r = 0; r < group.size(); ++r) expected += element(r, begin + static_cast<int64_t>(i));
    require(sum[i] == expected, "another sum");
  }
}

// Block r has sizes[r] elements on every rank.
void check_exchange(const HostGroup& group, const Ints& sizes, bool shared) {
  const int64_t own = sizes[static_cast<size_t>(group.rank())];
  const int64_t total = total_of(sizes);
  const auto x = numbers(group, total, shared);
  std::vector<int32_t> received(static_cast<size_t>(own * group.size()));
  group.all_to_all_v<int32_t>({x.get(), static_cast<size_t>(total)}, sizes, received,
                              Ints(sizes.size(), own));
  const int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + group.rank(), int64_t{0});
  for (size_t i = 0; i < received.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    require(received[i] == element(at / own, begin + at % own), "another exchange");
  }
}

// Inputs that ride with the header, are read in place and pass through rings, in one call.
TEST_P(HostGroups, SizesAndMemoryOfAllKindsMeet) {
  const int64_t n = GetParam();
  const auto body = [n](const HostGroup& group) {
    constexpr std::array<int64_t, 6> kSizes = {0, 1, 300, 16'384, 20'001, 400'000};
    for (int64_t shift = 0; shift < static_cast<int64_t>(kSizes.size()); ++shift) {
      Ints sizes;
      for (int64_t r = 0; r < n; ++r)
        sizes.push_back(kSizes[static_cast<size_t>(2 * r + shift) % kSizes.size()]);
      for (const int64_t parity : {0, 1, 2}) {
        const bool shared = parity == 2 || group.rank() % 2 == parity;
        check_gather(group, sizes, shared);
        check_scatter(group, sizes, shared);
        check_exchange(group, sizes, shared);
      }
    }
  };
  EXPECT_EQ(run(n, body), Endings(static_cast<size_t>(n)));
}

// 32 numbers fit the header's page, 33 lie beside it; of a reduction the page has what the others take.
TEST_P(HostGroups, InputsInsideAndBesideTheHeaderMeet) {
  const int64_t n = GetParam();
  const auto body = [n](const HostGroup& group) {
    constexpr std::array<int64_t, 7> kSizes = {32, 33, 1, 0, 16, 31, 17'000};
    for (int64_t shift = 0; shift < static_cast<int64_t>(kSizes.size()); ++shift) {
      Ints sizes;
      for (int64_t r = 0; r < n; ++r) sizes.push_back(kSizes[static_cast<size_t>(r + shift) % kSizes.size()]);
      for (const bool shared : {false, true}) {
        check_gather(group, sizes, shared);
        check_scatter(group, sizes, shared);
        check_exchange(group, sizes, shared);
      }
    }
  };
  EXPECT_EQ(run(n, body), Endings(static_cast<size_t>(n)));
}

TEST_P(HostGroups, RanksThatExpectOtherSizesAreTold) {
  const int64_t n = GetParam();
  if (n == 1) GTEST_SKIP() << "one rank agrees with itself";
  const auto body = [n](const HostGroup& group) {
    Ints sizes(static_cast<size_t>(n), 2);
    if (group.rank() == 1) sizes[0] = 3;
    const std::vector<int32_t> mine(2);
    std::vector<int32_t> all(static_cast<size_t>(total_of(sizes)), 7);
    bool failed = false;
    try {
      group.all_gather_v<int32_t>(mine, all, sizes);
    } catch (const std::runtime_error&) {
      failed = true;
    }
    require(failed || group.rank() != 1, "garbage was taken");
    require(group.rank() != 1 || all == std::vector<int32_t>(all.size(), 7), "the output was written");
  };
  EXPECT_EQ(run(n, body), Endings(static_cast<size_t>(n)));
}

TEST_P(HostGroups, SizesThatDoNotFitAreRefusedBeforeAnybodyWaits) {
  const int64_t n = GetParam();
  const auto body = [n](const HostGroup& group) {
    std::vector<float> memory(static_cast<size_t>(n));
    const auto refuses = [&](const Ints& sizes) {
      try {
        group.reduce_scatter_v<float>(memory, std::span(memory).first(1), sizes);
      } catch (const std::invalid_argument&) {
        return true;
      }
      return false;
    };
    require(refuses(Ints(static_cast<size_t>(n + 1), 1)), "one size too many");
    require(refuses(Ints(static_cast<size_t>(n), 2)), "sizes past the memory");
    require(refuses(Ints(static_cast<size_t>(n), -1)), "negative sizes");
  };
  EXPECT_EQ(run(n, body), Endings(static_cast<size_t>(n)));
}

INSTANTIATE_TEST_SUITE_P(, HostGroups, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

}  // namespace
}  // namespace shardway::testing
