// Redistribute over ranks that are threads, against a dense reference.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "layout_reference.h"
#include "shardway/shardway.h"

namespace shardway::testing {
namespace {

// A tensor of integers that f64 holds exactly, before and after.
struct Case {
  LayoutPair pair;
  std::vector<Dense> before;
  std::vector<Dense> after;
};

Layout as_f64(const Layout& layout) {
  return {layout.shape(), DType::f64, layout.mesh(), layout.placements(), layout.order()};
}

// Small ones travel beside the header, large ones by their routes.
LayoutPair any_pair_of(Dice& dice, bool is_large) {
  if (!is_large) return any_pair(dice);
  const std::vector<int64_t> shape{dice.between(int64_t{20}, int64_t{40}),
                                   dice.between(int64_t{20}, int64_t{40}),
                                   dice.between(int64_t{20}, int64_t{40})};
  const Mesh mesh = any_mesh(dice);
  if (dice.one_in(2)) return any_pair_on(dice, shape, mesh);
  return {any_layout(dice, shape, mesh, true), any_layout(dice, shape, any_mesh(dice), false)};
}

Case any_case(Dice& dice, int64_t ranks, bool is_large) {
  for (;;) {
    const LayoutPair drawn = any_pair_of(dice, is_large);
    if (ranks_of(drawn.from, drawn.to) > ranks) continue;
    Case result{.pair = {as_f64(drawn.from), as_f64(drawn.to)}, .before = {}, .after = {}};
    const Addends addends = any_addends(drawn.from, dice);
    result.before = locals_of(drawn.from, addends, ranks);
    result.after = locals_of(drawn.to, combined(addends, drawn.from, drawn.to), ranks);
    return result;
  }
}

at::Tensor tensor_of(const Dense& dense) {
  return at::tensor(dense.values, at::kLong).to(at::kDouble).reshape(dense.shape);
}

// Rows of it lie apart in memory.
at::Tensor strided(const at::Tensor& t) {
  if (t.dim() == 0) return t;
  std::vector<int64_t> wider = t.sizes().vec();
  wider.back() = 2 * wider.back() + 1;
  return at::full(wider, -1, t.options()).slice(-1, 1, std::nullopt, 2).narrow(-1, 0, t.size(-1)).copy_(t);
}

MeshTensor input_of(const Case& c, const Group& group, bool is_strided) {
  const bool is_inside = c.pair.from.mesh().position_of(group.rank()).has_value();
  at::Tensor local = is_inside ? tensor_of(c.before[static_cast<size_t>(group.rank())]) : at::Tensor();
  if (is_inside && is_strided) local = strided(local);
  return {local, c.pair.from, group};
}

void expect_result(const Case& c, const MeshTensor& result) {
  const auto rank = static_cast<size_t>(result.rank());
  EXPECT_TRUE(result.layout() == c.pair.to);
  if (!c.pair.to.mesh().position_of(result.rank())) {
    EXPECT_FALSE(result.local().defined());
    return;
  }
  EXPECT_TRUE(at::equal(result.local(), tensor_of(c.after[rank]))) << text_of(c.pair) << " rank " << rank;
}

int64_t volume_of(const Layout& layout) { return Box::whole(layout.shape()).volume(); }

// Whether all addends are added up.
bool is_linear(const Layout& layout) {
  return std::none_of(layout.placements().begin(), layout.placements().end(), [](const Placement& p) {
    return p.is_partial() && p.op != Op::sum && p.op != Op::avg;
  });
}

// By how much the averages are divided that do not stay.
double combined_averages(const LayoutPair& pair) {
  double divisor = 1;
  for (size_t m = 0; m < pair.from.placements().size(); ++m) {
    const Placement& placement = pair.from.placements()[m];
    const bool stays = pair.from.mesh() == pair.to.mesh() && pair.to.placements()[m] == placement;
    if (placement.is_partial() && placement.op == Op::avg && !stays)
      divisor *= static_cast<double>(pair.from.mesh().shape()[m]);
  }
  return divisor;
}

std::optional<at::Tensor> box_of(const at::Tensor& whole, const Layout& layout, int64_t rank) {
  const auto position = layout.mesh().position_of(rank);
  if (!position) return std::nullopt;
  at::Tensor part = whole;
  const Box box = reference_box(layout, *position);
  for (size_t d = 0; d < layout.shape().size(); ++d)
    part = part.narrow(static_cast<int64_t>(d), box.offset[d], box.extent[d]);
  return part;
}

class Redistribute : public ::testing::TestWithParam<int64_t> {};

INSTANTIATE_TEST_SUITE_P(, Redistribute, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

// Uneven, empty, ragged, reordered, across meshes, addends of every kind; contiguous and strided; at once or
// not.
TEST_P(Redistribute, GivesTheTargetForRandomPairs) {
  Dice dice;
  std::vector<Case> cases;
  for (int64_t i = 0; i < tries(400); ++i) cases.push_back(any_case(dice, GetParam(), i % 20 == 0));
  run_as_threads(GetParam(), [&](const Group& group) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const MeshTensor input = input_of(cases[i], group, i % 3 == 0);
      expect_result(cases[i], redistribute(input, cases[i].pair.to));
      if (i % 2 == 0) expect_result(cases[i], redistribute_async(input, cases[i].pair.to).wait());
    }
  });
}

// Every rank brings its box of one global gradient and gets its box of it; addends of an average their share.
TEST_P(Redistribute, BringsTheGradientBack) {
  Dice dice;
  std::vector<Case> cases;
  while (static_cast<int64_t>(cases.size()) < tries(100)) {
    Case drawn = any_case(dice, GetParam(), false);
    if (is_linear(drawn.pair.from)) cases.push_back(std::move(drawn));
  }
  run_as_threads(GetParam(), [&](const Group& group) {
    for (const Case& c : cases) {
      MeshTensor input = input_of(c, group, false);
      if (input.local().defined()) input.local().requires_grad_();
      const at::Tensor gradient = at::arange(volume_of(c.pair.to), at::kDouble).reshape(c.pair.to.shape());
      redistribute(input, c.pair.to).backward(box_of(gradient, c.pair.to, group.rank()));
      if (!input.local().defined()) continue;
      const at::Tensor expected = *box_of(gradient, c.pair.from, group.rank()) / combined_averages(c.pair);
      EXPECT_TRUE(at::allclose(input.local().grad(), expected)) << text_of(c.pair);
    }
  });
}

Layout on_all(const Group& group, const std::vector<Placement>& placements) {
  return {{6, 4}, DType::f32, Mesh({group.size()}), placements};
}

MeshTensor rows_of_ones(const Group& group) {
  const Layout layout = on_all(group, {shard(0)});
  return {at::ones(layout.box_at(group.rank()).extent), layout, group};
}

std::vector<std::string> refusals(const std::function<void(const Group&)>& call) {
  std::vector<std::string> said(3, "nothing was refused");
  run_as_threads(3, [&](const Group& group) {
    try {
      call(group);
    } catch (const c10::ValueError& error) {
      said[static_cast<size_t>(group.rank())] = error.what_without_backtrace();
    }
    EXPECT_TRUE(at::equal(rows_of_ones(group).full(), at::ones({6, 4}))) << "the group is not usable";
  });
  return said;
}

TEST(RedistributeRefusals, AreTheSameOnEveryRank) {
  const auto all = [](const std::string& text) { return std::vector<std::string>(3, text); };
  const auto target = [](const Group& g, const Placement& others, const Placement& odd) {
    redistribute(rows_of_ones(g), {g.rank() == 1 ? odd : others});
  };
  EXPECT_EQ(
      refusals([&](const Group& g) { target(g, shard(1), replicate()); }),
      all("redistribute: ranks disagree on the target: f32[6,4] on 3: S1 on rank 0, f32[6,4] on 3: R on "
          "rank 1"));
  EXPECT_EQ(refusals([&](const Group& g) { target(g, shard(1), shard(2)); }),
            all("redistribute: layout: S2 (mesh dim 0) splits dim 2 of a 2-d tensor (rank 1)"));
  EXPECT_EQ(
      refusals([&](const Group& g) { target(g, partial(), partial()); }),
      all("redistribute: plan: from S0 to P: addends are never made, so that a Partial can only stay as "
          "it is, on the same mesh (rank 0)"));
  EXPECT_EQ(refusals([&](const Group& g) { redistribute(rows_of_ones(g), {shard(1)}, {.mesh = Mesh({4})}); }),
            all("redistribute: the mesh 4 has rank 3, but the group has the ranks 0,1,2 (rank 0)"));
}

TEST(RedistributeRefusals, ATensorThatDoesNotFitItsLayoutIsTold) {
  const Layout layout({6, 4}, DType::f32, Mesh({1}), {shard(0)});
  const auto said = [&](const at::Tensor& local) -> std::string {
    try {
      MeshTensor(local, layout);
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "nothing was refused";
  };
  EXPECT_EQ(
      said(at::ones({5, 4})),
      "MeshTensor: local has shape [5, 4], but this rank's box of f32[6,4] on 1: S0 is [6, 4] (rank 0)");
  EXPECT_EQ(said(at::ones({6, 4}, at::kDouble)),
            "MeshTensor: local has dtype float64, but the layout is f32[6,4] on 1: S0 (rank 0)");
  EXPECT_EQ(said({}), "MeshTensor: this rank is in the mesh 1, but has no local (rank 0)");
}

// Rank 3 has died. What it held lies on rank 0, too.
TEST(RedistributeToLiving, TakesWhatTheDeadHeldFromTheirCopies) {
  const at::Tensor whole = at::arange(20).reshape({10, 2});
  std::vector<std::optional<MeshTensor>> held(4);
  std::vector<std::optional<MeshTensor>> copies(4);
  run_as_threads(4, [&](const Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    held[rank] = distribute(whole, Mesh({4}), {shard(0)}, {.group = group});
    copies[rank] = redistribute(*held[rank], {shard(0)}, {.mesh = Mesh({4}, {1, 2, 3, 0}, {})});
  });
  run_as_threads(3, [&](const Group& living) {
    const auto rank = static_cast<size_t>(living.rank());
    const MeshTensor rows =
        redistribute(*held[rank], {shard(0)}, {.group = living, .copies = {*copies[rank]}});
    EXPECT_EQ(rows.layout().mesh(), Mesh({3}));
    EXPECT_TRUE(at::equal(rows.local(), whole.tensor_split({4, 8})[living.rank()]));
    EXPECT_TRUE(at::equal(rows.full(), whole));
    const auto list = redistribute(std::vector{*held[rank], *copies[rank]}, {rows.layout(), rows.layout()},
                                   {.group = living, .copies = {{*copies[rank]}, {*held[rank]}}});
    for (const MeshTensor& tensor : list) EXPECT_TRUE(at::equal(tensor.local(), rows.local()));
    try {
      redistribute(*held[rank], {shard(0)}, {.group = living});
      FAIL() << "nothing was refused";
    } catch (const c10::ValueError& error) {
      EXPECT_STREQ(error.what_without_backtrace(),
                   "redistribute: i64[10,2] on 4: S0 has lost [9,10)×[0,2) with rank 3, and no living rank "
                   "holds a copy");
    }
  });
}

TEST(Distribute, PutsAWholeTensorOnAMesh) {
  const at::Tensor whole = at::arange(24).reshape({6, 4});
  run_as_threads(3, [&](const Group& group) {
    const Mesh mesh({2}, {2, 0}, {});
    for (const std::optional<int64_t> src : {std::optional<int64_t>(), std::optional<int64_t>(1)}) {
      const at::Tensor mine = !src || *src == group.rank() ? whole : at::Tensor();
      const MeshTensor rows = distribute(mine, mesh, {shard(-2, {4, 2})}, {.src = src, .group = group});
      if (group.rank() == 1) {
        EXPECT_FALSE(rows.local().defined());
      } else {
        const at::Tensor expected = group.rank() == 2 ? whole.narrow(0, 0, 4) : whole.narrow(0, 4, 2);
        EXPECT_TRUE(at::equal(rows.local(), expected));
      }
    }
  });
}

}  // namespace
}  // namespace shardway::testing
