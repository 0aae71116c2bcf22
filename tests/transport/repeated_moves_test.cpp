// Moves that are made again and again give what their inputs have by then.
#include "transport/common/repeated_moves.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "rank_runner.h"
#include "transport/common/two_routes.h"
#include "transport/shm/shm.h"

namespace shardway::testing {
namespace {

class RepeatedCalls : public ::testing::TestWithParam<int64_t> {
 protected:
  // The runner owns the group; the transport only borrows it.
  static void run(const std::function<void(Transport&)>& body) {
    EXPECT_NO_THROW(run_threads(GetParam(), [&](shm::SharedGroup& group) {
      body(*make_shm_transport(std::shared_ptr<shm::SharedGroup>(std::shared_ptr<void>(), &group)));
    }));
  }
};

constexpr int64_t kElements = 1001;
const Subject kSubject{.mark = shm::mark_of("repeated"), .name = "repeated", .words = {}};

at::Tensor numbers(int64_t rank, int64_t run) {
  return at::arange(kElements).add(10 * rank + run).to(at::kFloat);
}

at::Tensor sum_of_all(int64_t ranks, int64_t run) {
  at::Tensor sum = at::zeros({kElements});
  for (int64_t rank = 0; rank < ranks; ++rank) sum.add_(numbers(rank, run));
  return sum;
}

void expect_equal(const at::Tensor& found, const at::Tensor& wanted, const char* what) {
  if (!found.equal(wanted)) throw std::runtime_error(what);
}

TEST_P(RepeatedCalls, MakeAnAllReduceOfSharesAndTheirCollection) {
  run([](Transport& transport) {
    const Route route = all_reduce_route({kElements}, transport.rank(), transport.size(), Op::sum);
    const at::Tensor x = at::empty({kElements});
    const at::Tensor out = at::empty({kElements});
    const auto moves =
        repeated_in_two(dynamic_cast<RepeatsMoves&>(transport), {.route = &route, .x = x, .out = out});
    moves->fix(kSubject);
    for (int64_t run = 0; run < 3; ++run) {
      x.copy_(numbers(transport.rank(), run));
      moves->run(kSubject);
      expect_equal(out, sum_of_all(transport.size(), run), "an all-reduce");
    }
  });
}

// More tensors than a call takes at once, and all-reduces among them.
TEST_P(RepeatedCalls, MoveAListOfSeveralMeetings) {
  run([](Transport& transport) {
    const auto ranks = static_cast<size_t>(transport.size());
    const Split split{.shape = {kElements}, .dim = 0, .sizes = std::vector<int64_t>(ranks, kElements)};
    const Route gather = all_gather_route(split, transport.rank());
    const Route reduce = all_reduce_route({kElements}, transport.rank(), transport.size(), Op::sum);
    const at::Tensor x = at::empty({kElements});
    std::vector<RouteCall> calls;
    for (int64_t i = 0; i < 200; ++i) {
      const bool is_reduced = i % 50 == 7;
      const int64_t elements = is_reduced ? kElements : kElements * transport.size();
      calls.push_back({.route = is_reduced ? &reduce : &gather, .x = x, .out = at::empty({elements})});
    }
    const auto moves = repeated(transport, calls);
    for (int64_t run = 0; run < 3; ++run) {
      std::vector<at::Tensor> all;
      for (int64_t rank = 0; rank < transport.size(); ++rank) all.push_back(numbers(rank, run));
      x.copy_(numbers(transport.rank(), run));
      run == 0 ? transport.start_all(calls, kSubject)->finish() : moves->run(kSubject);
      for (const RouteCall& call : calls) {
        const at::Tensor wanted = call.route == &reduce ? sum_of_all(transport.size(), run) : at::cat(all);
        expect_equal(call.out, wanted, run == 0 ? "a list" : "a repeated list");
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, RepeatedCalls, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

}  // namespace
}  // namespace shardway::testing
