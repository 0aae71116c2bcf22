// The contract suite over several hosts: ranks are threads, and the ranks of a host have a group of their
// own.
#include <gtest/gtest.h>

#include <tuple>

#include "contract.h"
#include "dense_reference.h"
#include "shardway/group.h"
#include "transport/c10d/threads.h"
#include "transport/hosts/two_level_transport.h"

namespace shardway::testing {
namespace {

using Labels = std::vector<int64_t>;

void run_on_hosts(const Labels& labels, const std::function<void(const Group&)>& body) {
  const HostMap hosts(labels);
  const ThreadWorld between(hosts.ranks());
  std::vector<ThreadWorld> inside;
  for (int64_t host = 0; host < hosts.hosts(); ++host)
    inside.emplace_back(static_cast<int64_t>(hosts.ranks_of(host).size()));
  const auto run = [&](int64_t rank) {
    const ThreadWorld& own = inside[static_cast<size_t>(hosts.host_of(rank))];
    body(Group(make_two_level_transport({.hosts = hosts,
                                         .inside = own.transport(hosts.place_of(rank)),
                                         .between = between.mail_office(rank),
                                         .queue = std::make_shared<CallQueue>()})));
  };
  run_on_threads(hosts.ranks(), run, [&] {
    between.close();
    for (const ThreadWorld& world : inside) world.close();
  });
}

class TwoLevelContract : public ::testing::TestWithParam<std::tuple<Check, Labels>> {
 protected:
  void TearDown() override { host_labels().clear(); }
};

TEST_P(TwoLevelContract, Holds) {
  const auto& [check, labels] = GetParam();
  host_labels() = labels;
  EXPECT_NO_THROW(run_on_hosts(labels, check.run));
}

std::string test_name(const ::testing::TestParamInfo<TwoLevelContract::ParamType>& info) {
  std::string name = std::get<0>(info.param).name + "_on";
  for (const int64_t label : std::get<1>(info.param)) name += std::to_string(label);
  return name;
}

INSTANTIATE_TEST_SUITE_P(, TwoLevelContract,
                         ::testing::Combine(::testing::ValuesIn(transport_contract()),
                                            ::testing::Values(Labels{0, 1}, Labels{0, 0, 1},
                                                              Labels{0, 1, 0, 1}, Labels{0, 0, 0, 1, 1, 2})),
                         test_name);

}  // namespace
}  // namespace shardway::testing
