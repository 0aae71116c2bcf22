// The contract suite over ranks that are threads.
#include "contract.h"

#include <gtest/gtest.h>

#include <tuple>

#include "shardway/group.h"

namespace shardway::testing {
namespace {

class ThreadsContract : public ::testing::TestWithParam<std::tuple<Check, int64_t>> {};

TEST_P(ThreadsContract, Holds) {
  const auto& [check, ranks] = GetParam();
  EXPECT_NO_THROW(run_as_threads(ranks, check.run));
}

std::string test_name(const ::testing::TestParamInfo<ThreadsContract::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param)) + "ranks";
}

INSTANTIATE_TEST_SUITE_P(, ThreadsContract,
                         ::testing::Combine(::testing::ValuesIn(transport_contract()),
                                            ::testing::Values(1, 2, 3, 4)),
                         test_name);

TEST(RunAsThreads, GivesEachThreadItsRank) {
  std::vector<int64_t> seen(3, -1);
  run_as_threads(3, [&](const Group& group) {
    seen[static_cast<size_t>(group.rank())] = group.rank();
    EXPECT_EQ(group.size(), 3);
    EXPECT_TRUE(group.distributed());
  });
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2}));
}

TEST(RunAsThreads, PassesARanksExceptionOnAndStopsThoseThatWaitForIt) {
  const Check& check = check_named("RingShiftGivesEachRankItsNeighboursTensor");
  EXPECT_THROW(run_as_threads(3,
                              [&](const Group& group) {
                                if (group.rank() == 1) throw std::out_of_range("rank 1 gives up");
                                check.run(group);
                              }),
               std::out_of_range);
}

}  // namespace
}  // namespace shardway::testing
