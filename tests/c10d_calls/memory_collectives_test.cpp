// A call of the backend is one meeting, and a disagreement leaves the group as it was.
#include "c10d_calls/memory_collectives.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "rank_runner.h"

namespace shardway::testing {
namespace {

using backend::MemoryCollectives;
using backend::Tensors;

class BackendCalls : public ::testing::TestWithParam<int64_t> {
 protected:
  static void run(const std::function<void(MemoryCollectives&, shm::SharedGroup&)>& body) {
    EXPECT_NO_THROW(run_threads(GetParam(), [&](shm::SharedGroup& group) {
      backend::Table table(group.size());
      MemoryCollectives calls(group, table);
      body(calls, group);
    }));
  }
};

const c10d::ReduceOp kSum = c10d::ReduceOp::SUM;
constexpr std::array<int64_t, 4> kElements = {1, 1000, 20'000, 100'000};

TEST_P(BackendCalls, AreOneMeeting) {
  run([](MemoryCollectives& calls, shm::SharedGroup& group) {
    const int64_t ranks = group.size();
    const auto is_one = [&](const char* name, const std::function<void()>& call) {
      const uint64_t before = group.calls();
      call();
      require(group.calls() == before + 1,
              std::string(name) + " met " + std::to_string(group.calls() - before) + " times");
    };
    for (const int64_t elements : kElements) {
      const at::Tensor x = at::ones({ranks, elements});
      const at::Tensor part = at::empty({elements});
      const at::Tensor all = at::empty_like(x);
      const Tensors list = all.unbind();
      const bool is_root = group.rank() == 0;
      is_one("barrier", [&] { calls.barrier(); });
      is_one("broadcast", [&] { calls.broadcast(x, 0); });
      is_one("all_gather", [&] { calls.all_gather(list, part); });
      is_one("all_gather_single", [&] { calls.all_gather_single(all, part); });
      is_one("gather", [&] { calls.gather(is_root ? list : Tensors{}, part, 0); });
      is_one("scatter", [&] { calls.scatter(part, is_root ? list : Tensors{}, 0); });
      is_one("reduce_scatter", [&] { calls.reduce_scatter_single(part, x, kSum); });
      is_one("all_to_all", [&] { calls.all_to_all_single(all, x, {}, {}); });
      // With three ranks and more, large ones are combined in shares, which are then collected.
      if (ranks == 2 || elements <= 1000) is_one("all_reduce", [&] { calls.all_reduce(part, kSum); });
    }
  });
}

TEST_P(BackendCalls, GoOnAfterADisagreement) {
  run([](MemoryCollectives& calls, shm::SharedGroup& group) {
    for (const int64_t elements : kElements) {
      for (int turn = 0; turn < 3; ++turn) {
        const at::Tensor uneven = at::ones({elements + (group.rank() == 1 ? 1 : 0)});
        std::string error;
        try {
          calls.all_reduce(uneven, kSum);
        } catch (const c10::ValueError& thrown) {
          error = thrown.what_without_backtrace();
        }
        require(error.find("ranks disagree on the number of elements") != std::string::npos, error);
        require(at::equal(uneven, at::ones_like(uneven)), "a refused all_reduce has changed its input");
        const at::Tensor t = at::full({elements}, static_cast<double>(group.rank() + 1));
        calls.all_reduce(t, kSum);
        const int64_t ranks = group.size();
        require(at::equal(t, at::full_like(t, static_cast<double>(ranks * (ranks + 1)) / 2)),
                "a sum after a disagreement is wrong");
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, BackendCalls, ::testing::Values(2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

}  // namespace
}  // namespace shardway::testing
