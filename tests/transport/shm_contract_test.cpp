// The contract suite over shared memory, with ranks that are threads.
#include <gtest/gtest.h>

#include <tuple>

#include "contract.h"
#include "rank_runner.h"
#include "shardway/group.h"
#include "transport/shm/shm.h"

namespace shardway::testing {
namespace {

class ShmContract : public ::testing::TestWithParam<std::tuple<Check, int64_t>> {};

TEST_P(ShmContract, Holds) {
  const auto& [check, ranks] = GetParam();
  const auto run = check.run;
  const auto body = [run](shm::SharedGroup& group) {
    // The runner owns the group; the transport only borrows it.
    run(Group(make_shm_transport(std::shared_ptr<shm::SharedGroup>(std::shared_ptr<void>(), &group))));
  };
  EXPECT_NO_THROW(run_threads(ranks, body));
}

INSTANTIATE_TEST_SUITE_P(, ShmContract,
                         ::testing::Combine(::testing::ValuesIn(transport_contract()),
                                            ::testing::Values(1, 2, 3, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" +
                                  std::to_string(std::get<1>(info.param)) + "ranks";
                         });

}  // namespace
}  // namespace shardway::testing
