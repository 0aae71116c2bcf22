// Redistribute over ranks that are threads, against a dense reference.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace shardway::testing
