// Calls that are prepared, and ranks that hear how tensors lie, over ranks that are threads.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "dense_reference.h"
#include "shardway/shardway.h"

namespace shardway::testing {
namespace {

class Prepare : public ::testing::TestWithParam<int64_t> {};

INSTANTIATE_TEST_SUITE_P(, Prepare, ::testing::Values(2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

at::Tensor whole_of(double begin) { return at::arange(begin, begin + 42, at::kFloat).reshape({6, 7}); }

Layout rows_on(int64_t ranks) { return {{6, 7}, DType::f32, Mesh({ranks}), {shard(0)}}; }

at::Tensor part_of(const at::Tensor& whole, const Layout& layout, int64_t rank) {
  const Box box = layout.box_at(*layout.mesh().position_of(rank));
  return whole.narrow(0, box.offset[0], box.extent[0]).narrow(1, box.offset[1], box.extent[1]).clone();
}

TEST_P(Prepare, ARunReadsTheInputsAgainAndFillsTheSameResults) {
  const Layout rows = rows_on(GetParam());
  const Layout columns = rows.with({shard(1)});
  run_as_threads(GetParam(), [&](const Group& group) {
    const int64_t rank = group.rank();
    const MeshTensor first(part_of(whole_of(0), rows, rank), rows, group);
    const MeshTensor second(part_of(whole_of(100), rows, rank), rows, group);
    auto [results, call] = prepare([&, &a = first, &b = second] {
      return redistribute(std::vector<MeshTensor>{a, b}, std::vector<Layout>{columns, columns});
    });
    for (int64_t run = 1; run < 4; ++run) {
      first.local().copy_(part_of(whole_of(static_cast<double>(1000 * run)), rows, rank));
      for (const MeshTensor& result : results) result.local().fill_(NAN);
      call.run();
      EXPECT_TRUE(
          at::equal(results[0].local(), part_of(whole_of(static_cast<double>(1000 * run)), columns, rank)));
      EXPECT_TRUE(at::equal(results[1].local(), part_of(whole_of(100), columns, rank)));
    }
    call.run({second.local(), second.local()});
    EXPECT_TRUE(at::equal(results[0].local(), part_of(whole_of(100), columns, rank)));
    EXPECT_EQ(call.bytes().exchanges, 1);
    EXPECT_EQ(call.bytes().total(), call.bytes().least_total());
  });
}

TEST_P(Prepare, ARunFillsTheCallersViews) {
  const Layout rows = rows_on(GetParam());
  const Layout columns = rows.with({shard(1)});
  run_as_threads(GetParam(), [&](const Group& group) {
    const MeshTensor x(part_of(whole_of(0), rows, group.rank()), rows, group);
    const at::Tensor wanted = part_of(whole_of(0), columns, group.rank());
    const at::Tensor fused = at::full({2 * wanted.size(1), wanted.size(0)}, NAN);
    const at::Tensor view = fused.narrow(0, 0, wanted.size(1)).t();
    auto [results, call] = prepare([&, &t = x] {
      return redistribute(std::vector<MeshTensor>{t}, std::vector<Layout>{columns}, {.outs = {view}});
    });
    for (int run = 0; run < 3; ++run) {
      EXPECT_TRUE(results[0].local().is_same(view) && at::equal(view, wanted));
      EXPECT_TRUE(fused.narrow(0, wanted.size(1), wanted.size(1)).isnan().all().item<bool>());
      view.fill_(NAN);
      call.run();
    }
  });
}

TEST_P(Prepare, RefusesAnInputThatRequiresGradOnEveryRank) {
  run_as_threads(GetParam(), [&](const Group& group) {
    at::Tensor x = at::ones({2}, at::kDouble);
    if (group.rank() == 1) x.requires_grad_();
    EXPECT_THROW(prepare([&] { return all_reduce(x, {.group = group}); }), c10::ValueError);
    EXPECT_TRUE(at::equal(all_reduce(x.detach(), {.group = group}), at::full({2}, GetParam(), at::kDouble)));
  });
}

TEST_P(Prepare, OneCallAtATime) {
  run_as_threads(GetParam(), [&](const Group& group) {
    const at::Tensor x = at::ones({2});
    const auto two_calls = [&] {
      all_reduce(x, {.group = group});
      return all_reduce(x, {.group = group});
    };
    EXPECT_THROW(prepare(two_calls), c10::ValueError);
  });
}

TEST_P(Prepare, ARankWithoutAPartHearsHowTheTensorLies) {
  const Layout from({6, 7}, DType::f32, Mesh({1}), {replicate()});
  run_as_threads(GetParam(), [&](const Group& group) {
    const bool is_first = group.rank() == 0;
    const Layout heard = is_first ? from : hear_layouts({}, group).layouts.at(0);
    EXPECT_TRUE(heard == from);
    const MeshTensor t(is_first ? whole_of(0) : at::Tensor(), heard, group);
    const Layout rows = rows_on(group.size());
    EXPECT_TRUE(at::equal(redistribute(t, rows).local(), part_of(whole_of(0), rows, group.rank())));
  });
}

}  // namespace
}  // namespace shardway::testing
