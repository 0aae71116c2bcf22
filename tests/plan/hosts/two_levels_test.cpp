// A route in two levels gives what the route gives, and sends between hosts no more than it must.
#include "plan/hosts/two_levels.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>

#include "arbitrary_routes.h"
#include "rank_simulator.h"

namespace shardway::testing {
namespace {

// Elements so large that a run may be cut between any two, or so small that none is cut.
constexpr int64_t kCut = 64 << 10;
constexpr int64_t kWhole = 1;

struct World {
  HostMap hosts;
  std::vector<Route> routes;
  std::vector<ToldRoute> told;
  int64_t element_bytes;
  std::vector<TwoLevels> plans = {};

  std::vector<ToldRoute> told_by(int64_t host) const {
    std::vector<ToldRoute> mates;
    for (const int64_t mate : hosts.ranks_of(host)) mates.push_back(told[static_cast<size_t>(mate)]);
    return mates;
  }
};

World planned(const std::vector<Route>& routes, const std::vector<int64_t>& labels, int64_t element_bytes,
              const std::vector<ToldRoute>& told) {
  World world{.hosts = HostMap(labels), .routes = routes, .told = told, .element_bytes = element_bytes};
  for (int64_t rank = 0; rank < world.hosts.ranks(); ++rank) {
    const std::vector<ToldRoute> mates = world.told_by(world.hosts.host_of(rank));
    world.plans.push_back(two_levels_of(world.hosts, rank, mates, element_bytes));
  }
  return world;
}

World planned(const std::vector<Route>& routes, const std::vector<int64_t>& labels, int64_t element_bytes) {
  std::vector<ToldRoute> told;
  for (const Route& route : routes)
    told.push_back({.route = route, .has_contiguous_input = true, .has_contiguous_output = true});
  return planned(routes, labels, element_bytes, told);
}

Dense flat(int64_t elements) { return Dense::filled({elements}, kUntouched); }

std::vector<int64_t> read(const Dense& from, const Box& box) {
  std::vector<int64_t> values;
  for (const Index& index : indices_of(box)) values.push_back(from.at(index));
  return values;
}

void write(Dense& to, const Box& box, const std::vector<int64_t>& values) {
  const std::vector<Index> indices = indices_of(box);
  for (size_t i = 0; i < indices.size(); ++i) to.at(indices[i]) = values[i];
}

// What landed, over what was there before.
void put(const Outcome& outcome, Dense& onto) {
  for (size_t i = 0; i < onto.values.size(); ++i) {
    if (outcome.landed.values[i] > 0) onto.values[i] = outcome.output.values[i];
  }
}

// Runs a route of each host among the ranks of the host.
std::vector<Outcome> inside_hosts(const World& world, Route TwoLevels::*route,
                                  const std::vector<Dense>& inputs) {
  std::vector<Outcome> all(world.plans.size());
  for (int64_t host = 0; host < world.hosts.hosts(); ++host) {
    std::vector<Route> routes;
    std::vector<Dense> of_host;
    for (const int64_t rank : world.hosts.ranks_of(host)) {
      routes.push_back(world.plans[static_cast<size_t>(rank)].*route);
      of_host.push_back(inputs[static_cast<size_t>(rank)]);
      validate(routes.back());
    }
    const std::vector<Outcome> outcomes = simulate(routes, of_host);
    for (size_t place = 0; place < outcomes.size(); ++place)
      all[static_cast<size_t>(world.hosts.ranks_of(host)[place])] = outcomes[place];
  }
  return all;
}

std::vector<Outcome> between_hosts(const World& world, Route TwoLevels::*route,
                                   const std::vector<Dense>& inputs) {
  std::vector<Route> routes;
  for (const TwoLevels& plan : world.plans) {
    routes.push_back(plan.*route);
    validate(routes.back());
    for (const Move& pull : routes.back().pulls)
      RC_ASSERT(world.hosts.host_of(pull.peer) != world.hosts.host_of(routes.back().rank));
  }
  return simulate(routes, inputs);
}

Dense staged(const TwoLevels& plan, const Dense& input) {
  if (!plan.stages_input) return {.shape = {plan.staged_elements}, .values = input.values};
  Dense run = flat(plan.staged_elements);
  for (const BoxRun& one : plan.staged) write(run, {{one.offset}, {one.box.volume()}}, read(input, one.box));
  return run;
}

int64_t combined(Op op, int64_t a, int64_t b) {
  if (op == Op::sum) return a + b;
  if (op == Op::product) return a * b;
  return op == Op::min ? std::min(a, b) : std::max(a, b);
}

// What all ranks have in the end, by the plans alone.
std::vector<Dense> run(const World& world, const std::vector<Dense>& inputs) {
  const size_t ranks = world.plans.size();
  std::vector<Dense> sources;
  for (size_t rank = 0; rank < ranks; ++rank) sources.push_back(staged(world.plans[rank], inputs[rank]));
  std::vector<Dense> landed;
  for (const Outcome& outcome : between_hosts(world, &TwoLevels::copies, sources))
    landed.push_back(outcome.output);
  std::vector<Dense> sums;
  for (const Outcome& outcome : inside_hosts(world, &TwoLevels::sums, sources))
    sums.push_back(outcome.output);
  std::vector<Dense> crossed;
  for (const Outcome& outcome : between_hosts(world, &TwoLevels::crossing, sums))
    crossed.push_back(outcome.output);
  const std::vector<Outcome> handed = inside_hosts(world, &TwoLevels::handover, landed);
  const std::vector<Outcome> home = inside_hosts(world, &TwoLevels::home, inputs);

  std::vector<Dense> outputs;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const TwoLevels& plan = world.plans[rank];
    put(handed[rank], landed[rank]);
    Dense output = Dense::filled(world.routes[rank].output_shape, kUntouched);
    if (!plan.lands_aside) output.values = landed[rank].values;
    put(home[rank], output);
    if (plan.host_sums.empty() && plan.lands_aside) {
      for (const BoxRun& one : plan.landed)
        write(output, one.box, read(landed[rank], {{one.offset}, {one.box.volume()}}));
    }
    for (const HostSum& sum : plan.host_sums) {
      for (const Index& index : indices_of(sum.box)) {
        bool is_first = true;
        for (const HostOperand& operand : sum.operands) {
          const Dense& memory = operand.memory == HostOperand::Memory::landed      ? landed[rank]
                                : operand.memory == HostOperand::Memory::home_sums ? sums[rank]
                                                                                   : crossed[rank];
          int64_t at = 0;
          for (size_t d = 0; d < index.size(); ++d)
            at = at * operand.run.box.extent[d] + index[d] - operand.run.box.offset[d];
          const int64_t value = memory.at({operand.run.offset + at});
          int64_t& here = output.at(index);
          here = is_first ? value : combined(world.routes[rank].op, here, value);
          is_first = false;
        }
      }
    }
    outputs.push_back(std::move(output));
  }
  return outputs;
}

std::vector<int64_t> any_labels(size_t ranks) {
  std::vector<int64_t> labels;
  for (size_t rank = 0; rank < ranks; ++rank) labels.push_back(any_between(0, 2));
  return labels;
}

RC_GTEST_PROP(TwoLevels, GiveWhatTheRouteGives, ()) {
  std::vector<Route> routes = any_routes();
  for (Route& route : routes) route.divisor = 1;  // the ranks divide in the end
  const std::vector<Dense> inputs = any_inputs(routes);
  std::vector<ToldRoute> told;
  for (const Route& route : routes)
    told.push_back({.route = route,
                    .has_contiguous_input = any_between(0, 1) == 1,
                    .has_contiguous_output = any_between(0, 1) == 1});
  const int64_t element_bytes = any_between(0, 1) == 1 ? kCut : kWhole;
  const World world = planned(routes, any_labels(routes.size()), element_bytes, told);
  const std::vector<Outcome> wanted = simulate(routes, inputs);
  const std::vector<Dense> found = run(world, inputs);
  for (size_t rank = 0; rank < routes.size(); ++rank) RC_ASSERT(found[rank] == wanted[rank].output);
}

// A rank of a host plans for itself alone what one who plans for all finds for it.
RC_GTEST_PROP(TwoLevels, OfAHostAreThoseOfItsRanks, ()) {
  const std::vector<Route> routes = any_routes();
  const World world = planned(routes, any_labels(routes.size()), any_between(0, 1) == 1 ? kCut : kWhole);
  for (int64_t host = 0; host < world.hosts.hosts(); ++host) {
    const std::vector<int64_t>& ranks = world.hosts.ranks_of(host);
    const std::vector<TwoLevels> found =
        two_levels_of_host(world.hosts, host, world.told_by(host), world.element_bytes);
    RC_ASSERT(found.size() == ranks.size());
    for (size_t place = 0; place < ranks.size(); ++place)
      RC_ASSERT(found[place] == world.plans[static_cast<size_t>(ranks[place])]);
  }
}

// Elements that cross between hosts, by the host that they leave and by the one that they reach.
struct Crossings {
  std::vector<int64_t> out;
  std::vector<int64_t> in;
};

Crossings crossings(const World& world) {
  Crossings found{.out = std::vector<int64_t>(static_cast<size_t>(world.hosts.hosts())),
                  .in = std::vector<int64_t>(static_cast<size_t>(world.hosts.hosts()))};
  for (const TwoLevels& plan : world.plans) {
    for (const Route* route : {&plan.copies, &plan.crossing}) {
      const auto host = static_cast<size_t>(world.hosts.host_of(route->rank));
      for (const Move& pull : route->pulls) found.in[host] += pull.mine.volume();
      for (const Move& push : route->pushes) found.out[host] += push.mine.volume();
    }
  }
  return found;
}

const std::vector<int64_t> kHalves = {0, 0, 0, 1, 1, 1};
const Split kRows{.shape = {0, 4}, .dim = 0, .sizes = {3, 0, 6, 1, 2, 5}};  // 9 rows here, 8 there

TEST(TwoLevels, AGatherSendsEveryRowToAHostOnce) {
  for (const int64_t element_bytes : {kCut, kWhole}) {
    const Crossings found = crossings(planned(all_gather_routes(kRows), kHalves, element_bytes));
    EXPECT_EQ(found.out, (std::vector<int64_t>{36, 32}));
    EXPECT_EQ(found.in, (std::vector<int64_t>{32, 36}));
  }
}

TEST(TwoLevels, AReduceScatterSendsOneSumPerRow) {
  const Crossings found = crossings(planned(reduce_scatter_routes(kRows), kHalves, kCut));
  EXPECT_EQ(found.out, (std::vector<int64_t>{32, 36}));
  EXPECT_EQ(found.in, (std::vector<int64_t>{36, 32}));
}

TEST(TwoLevels, ABroadcastReachesEachHostOnceAndSharesTheWorkThere) {
  std::vector<Route> routes;
  for (int64_t rank = 0; rank < 6; ++rank) routes.push_back(broadcast_route({30}, rank, 6, 1));
  const World world = planned(routes, kHalves, kCut);
  EXPECT_EQ(crossings(world).in, (std::vector<int64_t>{0, 30}));
  for (size_t rank = 3; rank < 6; ++rank) {
    ASSERT_EQ(world.plans[rank].copies.pulls.size(), 1U);
    EXPECT_EQ(world.plans[rank].copies.pulls[0].mine.volume(), 10);
  }
}

TEST(TwoLevels, TheRanksOfAHostShareTheSumsThatLeaveIt) {
  const World world =
      planned(reduce_scatter_routes({.shape = {0}, .dim = 0, .sizes = {6, 6, 6, 6, 6, 6}}), kHalves, kCut);
  for (const TwoLevels& plan : world.plans) {
    int64_t sent = 0;
    for (const Move& push : plan.crossing.pushes) sent += push.mine.volume();
    EXPECT_EQ(sent, 6);
  }
}

int64_t messages(const World& world) {
  size_t found = 0;
  for (const TwoLevels& plan : world.plans) found += plan.copies.pushes.size() + plan.crossing.pushes.size();
  return static_cast<int64_t>(found);
}

TEST(TwoLevels, BoxesThatSpreadOverTheRanksOfAHostCrossWhole) {
  const Split equal{.shape = {0}, .dim = 0, .sizes = {6, 6, 6, 6, 6, 6}};
  for (const auto& routes : {all_gather_routes(equal), reduce_scatter_routes(equal)}) {
    const World world = planned(routes, kHalves, kCut);
    EXPECT_EQ(messages(world), 6);
    for (const TwoLevels& plan : world.plans)
      EXPECT_EQ(plan.copies.pulls.size() + plan.crossing.pulls.size(), 1U) << "rank " << plan.copies.rank;
  }
}

// Of rows 1, 1 and 10, a rank's share is 4: the large box is 2.5 shares, and is cut in three.
TEST(TwoLevels, ABoxOfSeveralSharesIsCut) {
  const Split uneven{.shape = {0}, .dim = 0, .sizes = {1, 1, 10, 0, 0, 0}};
  EXPECT_EQ(messages(planned(all_gather_routes(uneven), kHalves, kCut)), 1 + 1 + 3);
}

TEST(TwoLevels, OnOneHostNothingCrosses) {
  const World world = planned(all_gather_routes(kRows), {0, 0, 0, 0, 0, 0}, kCut);
  EXPECT_EQ(crossings(world).in, (std::vector<int64_t>{0}));
  for (const TwoLevels& plan : world.plans) EXPECT_EQ(plan.home.pulls.size(), 5U);  // one rank has no rows
}

TEST(HostMap, NumbersHostsInTheOrderOfTheirFirstRanks) {
  const HostMap hosts({7, 3, 7, 3, 5});
  EXPECT_EQ(hosts.hosts(), 3);
  EXPECT_EQ(hosts.ranks_of(0), (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(hosts.ranks_of(1), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(hosts.host_of(4), 2);
  EXPECT_EQ(hosts.place_of(3), 1);
}

}  // namespace
}  // namespace shardway::testing
