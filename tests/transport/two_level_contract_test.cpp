// The contract suite over several hosts: ranks are threads, and the ranks of a host have a group of their
// own.
#include <gtest/gtest.h>

#include <tuple>

#include "contract.h"
#include "dense_reference.h"
#include "shardway/group.h"
#include "thread_hosts.h"

namespace shardway::testing {
namespace {

class TwoLevelContract : public ::testing::TestWithParam<std::tuple<Check, Labels, Between>> {
 protected:
  void TearDown() override { host_labels().clear(); }
};

TEST_P(TwoLevelContract, Holds) {
  const auto& [check, labels, between] = GetParam();
  host_labels() = labels;
  EXPECT_NO_THROW(run_on_hosts({.labels = labels, .between = between}, check.run));
}

std::string name_with_hosts(const ::testing::TestParamInfo<TwoLevelContract::ParamType>& info) {
  std::string name = std::get<0>(info.param).name + "_on";
  for (const int64_t label : std::get<1>(info.param)) name += std::to_string(label);
  return name + (std::get<2>(info.param) == Between::engine ? "_by_engine" : "");
}

INSTANTIATE_TEST_SUITE_P(, TwoLevelContract,
                         ::testing::Combine(::testing::ValuesIn(transport_contract()),
                                            ::testing::Values(Labels{0, 1}, Labels{0, 0, 1},
                                                              Labels{0, 1, 0, 1}, Labels{0, 0, 0, 1, 1, 2}),
                                            ::testing::Values(Between::mail, Between::engine)),
                         name_with_hosts);

}  // namespace
}  // namespace shardway::testing
