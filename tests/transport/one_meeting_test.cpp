// A call is one meeting: the number of the group's calls rises by one, whatever the size, and where ranks
// disagree nothing has moved and the group goes on.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "rank_runner.h"
#include "shardway/collectives.h"
#include "shardway/mesh_tensor.h"
#include "shardway/redistribute.h"
#include "transport/shm/shm.h"

namespace shardway::testing {
namespace {

using OfGroup = std::function<void(const Group& group, shm::SharedGroup& counted)>;

class OneMeeting : public ::testing::TestWithParam<int64_t> {
 protected:
  static void run(const OfGroup& body) {
    EXPECT_NO_THROW(run_threads(GetParam(), [&](shm::SharedGroup& group) {
      // The runner owns the group; the transport only borrows it.
      body(Group(make_shm_transport(std::shared_ptr<shm::SharedGroup>(std::shared_ptr<void>(), &group))),
           group);
    }));
  }
};

// A few rows of a row of 4 bytes, up to rows of 256 KiB.
constexpr std::array<int64_t, 4> kRowElements = {1, 1024, 16 << 10, 64 << 10};

at::Tensor rows_of(const Group& group, int64_t elements) {
  return at::full({group.rank() + 1, elements}, static_cast<double>(group.rank()));
}

TEST_P(OneMeeting, OfEveryCollectiveThatMoves) {
  run([](const Group& group, shm::SharedGroup& counted) {
    const auto is_one = [&](const char* name, const std::function<void()>& call) {
      const uint64_t before = counted.calls();
      call();
      require(counted.calls() == before + 1,
              std::string(name) + " met " + std::to_string(counted.calls() - before) + " times");
    };
    for (const int64_t elements : kRowElements) {
      const at::Tensor x = rows_of(group, elements);
      const Sizes one_each(static_cast<size_t>(group.size()), 1);
      const at::Tensor square = at::ones({group.size(), elements});
      is_one("all_gather_v", [&] { all_gather_v(x, {.group = group}); });
      is_one("all_to_all_v", [&] { all_to_all_v(square, one_each, {.group = group}); });
      is_one("gather_v", [&] { gather_v(x, {.group = group}); });
      is_one("scatter_v",
             [&] { scatter_v(group.rank() == 0 ? std::optional(square) : std::nullopt, {.group = group}); });
      is_one("broadcast", [&] { broadcast(square, {.group = group}); });
      is_one("reduce_scatter_v", [&] { reduce_scatter_v(square, {.group = group}); });
      Sizes for_the_last(static_cast<size_t>(group.size()), 0);
      for_the_last.back() = group.size();
      is_one("a skewed reduce_scatter_v",
             [&] { reduce_scatter_v(square, {.sizes = for_the_last, .group = group}); });
      is_one("all_reduce", [&] { all_reduce(square, {.group = group}); });
      const Layout layout({group.size(), elements}, DType::f32, Mesh({group.size()}), {shard(0)});
      const MeshTensor t(at::ones({1, elements}), layout, group);
      is_one("redistribute", [&] { redistribute(t, std::vector{replicate()}); });
    }
  });
}

TEST_P(OneMeeting, ADisagreementOfLargeCallsLeavesTheGroupAsItWas) {
  run([](const Group& group, shm::SharedGroup& counted) {
    for (const int64_t elements : kRowElements) {
      const at::Tensor x = at::full({2, elements + (group.rank() == 1 ? 1 : 0)}, 7.0);
      for (int turn = 0; turn < 3; ++turn) {
        std::string error;
        try {
          all_gather_v(x, {.group = group});
        } catch (const c10::ValueError& thrown) {
          error = thrown.what_without_backtrace();
        }
        require(error.find("disagree on shape") != std::string::npos, "no disagreement: " + error);
        const Ragged all = all_gather_v(rows_of(group, elements), {.group = group});
        int64_t row = 0;
        for (int64_t rank = 0; rank < group.size(); ++rank) {
          for (int64_t i = 0; i <= rank; ++i, ++row)
            require(at::equal(all.tensor[row], at::full({elements}, static_cast<double>(rank))),
                    "row " + std::to_string(row) + " is wrong after a disagreement");
        }
      }
    }
    require(!counted.is_lost(), "the group is lost");
  });
}

INSTANTIATE_TEST_SUITE_P(, OneMeeting, ::testing::Values(2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

}  // namespace
}  // namespace shardway::testing
