#include "shardway/kept_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace shardway::testing {
namespace {

using KeptNumbers = std::vector<int64_t, KeptMemory<int64_t>>;

TEST(KeptMemory, OfALongListServesTheNextOfAboutItsLength) {
  const int64_t* before = nullptr;
  {
    const KeptNumbers numbers(100'000);
    before = numbers.data();
  }
  EXPECT_EQ(KeptNumbers(90'000).data(), before);
}

TEST(KeptMemory, OfAListInUseServesNoOther) {
  const KeptNumbers one(100'000, 1);
  const KeptNumbers other(100'000, 2);
  EXPECT_EQ(one, KeptNumbers(100'000, 1));
  EXPECT_EQ(other, KeptNumbers(100'000, 2));
}

// Several lists of 8 MiB: only two of them fit into what is kept.
TEST(KeptMemory, HasALimit) {
  std::vector<KeptNumbers> lists;
  for (int i = 0; i < 4; ++i) lists.emplace_back(size_t{1} << 20);
  const int64_t* last = lists[3].data();
  while (!lists.empty()) lists.erase(lists.begin());
  KeptNumbers again(size_t{1} << 20);
  EXPECT_NE(again.data(), last);
}

TEST(KeptMemory, IsSafeFromSeveralThreads) {
  std::vector<std::thread> threads;
  std::vector<int64_t> wrong(4, 0);
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([t, &wrong] {
      for (int64_t i = 0; i < 200; ++i) {
        const KeptNumbers numbers(static_cast<size_t>(5'000 + i * 37), t);
        for (const int64_t number : numbers) wrong[static_cast<size_t>(t)] += number == t ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int64_t>(4, 0));
}

}  // namespace
}  // namespace shardway::testing
