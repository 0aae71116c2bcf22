#include <gtest/gtest.h>

#include <numeric>

#include "rank_runner.h"
#include "shardway/shm.h"

namespace shardway::testing {
namespace {

using Ints = std::vector<int64_t>;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

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
