// Groups of C++ programs: joined by an exchange or by the environment, split and shrunk.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <numeric>

#include "rank_runner.h"
#include "shardway/collectives.h"
#include "shardway/mesh_tensor.h"
#include "shardway/nn.h"
#include "shardway/shrink.h"

namespace shardway::testing {
namespace {

std::string text(int64_t number) { return std::to_string(number); }

// The numbers that the ranks of a group gather, one each.
std::vector<int64_t> told(const Group& group, int64_t mine) {
  const at::Tensor all = all_gather_v(at::full({1}, mine, at::kLong), {.group = group}).tensor;
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()};
}

std::vector<int64_t> counted(int64_t ranks) {
  std::vector<int64_t> numbers(static_cast<size_t>(ranks));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// Odd and even ranks, the highest first.
void check_split(const Group& world) {
  const Group half = world.split(world.rank() % 2, -world.rank());
  std::vector<int64_t> expected;
  for (int64_t rank = world.size() - 1; rank >= 0; --rank) {
    if (rank % 2 == world.rank() % 2) expected.push_back(rank);
  }
  require(told(half, world.rank()) == expected, "another half");
  require(half.global_ranks() == expected, "other global ranks of the half");
  require(half.split(0, half.rank()).global_ranks() == expected, "other global ranks of a part of the half");
  const at::Tensor sum = all_reduce(at::ones({}), {.group = half});
  require(sum.item<float>() == static_cast<float>(expected.size()), "another sum");
  require(told(world, world.rank()) == counted(world.size()), "the world is not what it was");
}

template <class Error>
std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what_without_backtrace();
  }
  return "nothing was thrown";
}

class Joins : public ::testing::TestWithParam<int64_t> {};

TEST_P(Joins, ProcessesGatherAndSplit) {
  const int64_t n = GetParam();
  const std::string job = text(getpid());
  const auto body = [n, &job](int64_t rank, const shm::Exchange& exchange) {
    const Group given = join({.rank = rank, .size = n, .exchange = exchange});
    require(given.rank() == rank && given.size() == n, "another place");
    require(told(given, rank) == counted(n), "another world");
    setenv("SHARDWAY_JOB", job.c_str(), 1);
    setenv("RANK", text(rank).c_str(), 1);
    setenv("WORLD_SIZE", text(n).c_str(), 1);
    check_split(join());
  };
  EXPECT_EQ(run_unjoined(n, body), Endings(static_cast<size_t>(n)));
}

TEST_P(Joins, ThreadsSplitToo) { EXPECT_NO_THROW(run_as_threads(GetParam(), check_split)); }

TEST_P(Joins, ANegativeColorIsAnErrorOnEveryRank) {
  const int64_t n = GetParam();
  const auto body = [n](int64_t rank, const shm::Exchange& exchange) {
    const Group world = join({.rank = rank, .size = n, .exchange = exchange});
    const std::string found = message_of<c10::ValueError>([&] { world.split(rank == n - 1 ? -3 : 1); });
    require(found == "split: color=-3 is negative (rank " + text(n - 1) + ")", found);
    require(told(world, rank) == counted(n), "the world is not what it was");
  };
  EXPECT_EQ(run_unjoined(n, body), Endings(static_cast<size_t>(n)));
}

TEST_P(Joins, ACallThatSaysNoGroupMeansTheJoinedWorld) {
  const int64_t n = GetParam();
  const auto body = [n](int64_t rank, const shm::Exchange& exchange) {
    nn::AllReduce module;  // made before
    const auto sum = [](const at::Tensor& result) { return result.item<int64_t>(); };
    const at::Tensor one = at::ones({}, at::kLong);
    {
      const Group world = join({.rank = rank, .size = n, .exchange = exchange});
      require(sum(all_reduce(one)) == n && sum(module(one)) == n, "another sum");
      require(sum(all_reduce(one, {.group = Group::alone()})) == 1, "this rank was not alone");
      require(gather_sizes(one.expand({rank})) == counted(n), "other sizes");
      const MeshTensor rows(at::ones({1}), Layout({n}, DType::f32, Mesh({n}), {shard(0)}));
      require(rows.full().numel() == n, "another tensor");
      const Group again = join({.rank = rank, .size = n, .exchange = exchange});
      const std::string found = message_of<c10::ValueError>([&] { all_reduce(one); });
      require(found ==
                  "all_reduce: no group is given, and this program has joined several worlds: say which one "
                  "is meant, as in {.group = world}",
              found);
      require(
          message_of<c10::ValueError>([&] { all_gather_v_async(one); }).starts_with("all_gather_v: no group"),
          "an async call is not refused");
      require(message_of<c10::ValueError>([&] { Group().split(0); }).starts_with("split: no group"),
              "a split is not refused");
      require(sum(all_reduce(one, {.group = again})) == n, "another sum of one of the worlds");
    }
    require(sum(all_reduce(one)) == 1 && sum(module(one)) == 1, "the worlds are gone");
  };
  EXPECT_EQ(run_unjoined(n, body), Endings(static_cast<size_t>(n)));
}

INSTANTIATE_TEST_SUITE_P(, Joins, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return text(info.param) + "ranks"; });

TEST(Join, MistakesAndMissingRanksAreTorchsErrors) {
  EXPECT_EQ(message_of<c10::ValueError>([] { return join({.rank = 0, .size = 2}); }),
            "join: rank, size and exchange go together, and only some of them are given");
  const auto body = [](int64_t, const shm::Exchange&) {
    setenv("SHARDWAY_JOB", text(getpid()).c_str(), 1);
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    const std::string found =
        message_of<c10::DistBackendError>([] { return join({.timeout = std::chrono::milliseconds(50)}); });
    require(found ==
                "rank 0 could not be reached: no such rank of this job joined on this host (shardway launch)",
            found);
  };
  EXPECT_EQ(run_unjoined(1, body), Endings(1));
}

// What torch would have printed.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;
};

TEST(Join, ACallOfAProgramThatHasNotJoinedWarnsOnce) {
  const auto body = [](int64_t, const shm::Exchange&) {
    Warnings warnings;
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    const at::Tensor x = at::ones({2});
    unsetenv("WORLD_SIZE");
    all_reduce(x);
    setenv("WORLD_SIZE", "1", 1);
    all_reduce(x);
    setenv("WORLD_SIZE", "4", 1);
    all_reduce(x, {.group = Group::alone()});
    require(warnings.texts.empty(), "a lone rank is warned");
    require(all_gather_v(x).tensor.is_same(x), "the input does not come back");
    all_reduce(x);
    require(warnings.texts.size() == 1, text(static_cast<int64_t>(warnings.texts.size())) + " warnings");
    require(warnings.texts[0].starts_with("all_gather_v: WORLD_SIZE=4 is set, but no group is given"),
            warnings.texts[0]);
  };
  EXPECT_EQ(run_unjoined(1, body), Endings(1));
}

TEST(Join, AGroupThatLostARankShrinksAndKeepsTheNumbersOfTheWorld) {
  const auto body = [](int64_t rank, const shm::Exchange& exchange) {
    const Group world = join({.rank = rank, .size = 4, .exchange = exchange});
    const Group part = world.split(rank == 0 ? 1 : 0);
    told(part, rank);
    if (rank == 2) ::raise(SIGKILL);
    if (rank == 0) return;
    const std::string lost = message_of<c10::DistBackendError>([&] {
      for (;;) told(part, rank);
    });
    require(lost.find("rank 1 could not be reached: its process ended") != std::string::npos, lost);
    const Group small = shrink(part, std::chrono::seconds(30));
    const std::vector<int64_t> left = {1, 3};
    require(told(small, rank) == left && small.global_ranks() == left, "other ranks");
    const std::string again = message_of<c10::ValueError>([&] { (void)shrink(part); });
    require(again.starts_with("shrink: the group was shrunk before"), again);
  };
  EXPECT_EQ(run_unjoined(4, body), (Endings{"", "", "signal 9", ""}));
}

TEST(Join, NoGroupCannotShrink) {
  const std::string said = message_of<c10::ValueError>([] { (void)shrink(Group::alone()); });
  EXPECT_EQ(said,
            "shrink: the ranks share no memory, or have made no call yet by which they would know (rank 0)");
}

TEST(Join, NoGroupSplitsIntoOneRank) {
  const Group alone = Group().split(3);
  EXPECT_EQ(alone.size(), 1);
  EXPECT_FALSE(alone.distributed());
}

}  // namespace
}  // namespace shardway::testing
