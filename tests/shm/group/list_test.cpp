// Lists of tensors over shared memory: all of them in one call.
#include <gtest/gtest.h>

#include "rank_runner.h"
#include "scenario.h"
#include "shm/board/board.h"
#include "shm/group/group.h"

namespace shardway::testing {
namespace {

std::vector<int64_t> growing(int64_t ranks, int64_t unit) {
  std::vector<int64_t> sizes;
  for (int64_t rank = 0; rank < ranks; ++rank) sizes.push_back(rank * unit);
  return sizes;
}

// Only rank `owner` gets rows.
std::vector<int64_t> all_for(int64_t owner, int64_t ranks, int64_t rows) {
  std::vector<int64_t> sizes(static_cast<size_t>(ranks), 0);
  sizes[static_cast<size_t>(owner)] = rows;
  return sizes;
}

// Copies and sums, of a few bytes and of several slots, with ranks that have nothing.
std::vector<Scenario> mixture(int64_t ranks) {
  return {gather({0, 301}, 0, growing(ranks, 70)),
          reduce_scatter({0, 40}, 0, growing(ranks, 700)),
          all_to_all(ranks, 3, 5),
          gather({3, 0}, 1, growing(ranks, 1)),
          reduce_scatter({0}, 0, all_for(ranks - 1, ranks, 70'000)),
          all_to_all(ranks, 60, 501),
          reduce_scatter({5, 0}, 1, growing(ranks, 2))};
}

class ShmList : public ::testing::TestWithParam<int64_t> {
 protected:
  static void run(const std::vector<Scenario>& scenarios, int times = 3) {
    const auto body = [&](shm::SharedGroup& group) { run_scenarios_at_once(group, scenarios, times); };
    EXPECT_NO_THROW(run_threads(GetParam(), body));
    EXPECT_EQ(run_processes(GetParam(), body), Endings(static_cast<size_t>(GetParam())));
  }
};

TEST_P(ShmList, MovesThroughRings) { run(mixture(GetParam())); }

TEST_P(ShmList, IsReadWhereItLies) {
  std::vector<Scenario> scenarios = mixture(GetParam());
  for (Scenario& scenario : scenarios) scenario.where.assign(static_cast<size_t>(GetParam()), Where::arena);
  run(scenarios);
}

TEST_P(ShmList, MayLieHereAndThere) {
  std::vector<Scenario> scenarios = mixture(GetParam());
  for (size_t i = 0; i < scenarios.size(); ++i) {
    for (size_t rank = 0; rank < static_cast<size_t>(GetParam()); ++rank)
      scenarios[i].where.push_back((i + rank) % 3 == 0 ? Where::arena : Where::anywhere);
    scenarios[i].is_transposed = i % 2 == 0;
  }
  run(scenarios);
}

TEST_P(ShmList, MayHaveATensorWhoseOwnerSaysWhereItsBoxesLie) {
  for (const Where where : {Where::anywhere, Where::arena}) {
    std::vector<Scenario> scenarios = mixture(GetParam());
    scenarios[5].offsets_known = false;
    for (Scenario& scenario : scenarios) scenario.where.assign(static_cast<size_t>(GetParam()), where);
    run(scenarios);
  }
}

TEST_P(ShmList, OfOneTensorIsACallOfIt) { run({all_to_all(GetParam(), 20, 33)}); }

TEST_P(ShmList, IsOneCallOfTheGroup) {
  run_threads(GetParam(), [](shm::SharedGroup& group) {
    const uint64_t before = group.calls();
    run_scenarios_at_once(group, mixture(group.size()));
    EXPECT_EQ(group.calls(), before + 1);
  });
}

TEST_P(ShmList, OfTooManyTensorsIsRefused) {
  run_threads(GetParam(), [](shm::SharedGroup& group) {
    const std::vector<Scenario> many(shm::kMostParts + 1, all_to_all(group.size(), 1, 1));
    EXPECT_THROW(run_scenarios_at_once(group, many), std::invalid_argument);
    run_scenarios_at_once(group, mixture(group.size()));  // the group goes on
  });
}

INSTANTIATE_TEST_SUITE_P(, ShmList, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

}  // namespace
}  // namespace shardway::testing
