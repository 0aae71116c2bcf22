// Bad arguments and disagreements: every rank gets the same sentence, and the group goes on.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "dense_reference.h"
#include "shardway/shardway.h"

namespace shardway::testing {
namespace {

using Body = std::function<void(const Group&)>;

// What each rank's call threw as c10::ValueError; afterwards the group must still gather.
std::vector<std::string> refusals(int64_t ranks, const Body& call) {
  std::vector<std::string> said(static_cast<size_t>(ranks), "nothing was refused");
  run_as_threads(ranks, [&](const Group& group) {
    try {
      call(group);
    } catch (const c10::ValueError& error) {
      said[static_cast<size_t>(group.rank())] = error.what_without_backtrace();
    }
    EXPECT_EQ(all_gather_v(at::ones({group.rank(), 2}), {.group = group}).tensor.size(0),
              ranks * (ranks - 1) / 2);
  });
  return said;
}

std::vector<std::string> same_on_all(int64_t ranks, const std::string& text) {
  return std::vector<std::string>(static_cast<size_t>(ranks), text);
}

// The calls of ranks 0, 1 and 2; `odd` is made by rank 1 only.
Body only_rank_1(const Body& even, const Body& odd) {
  return [=](const Group& group) { group.rank() == 1 ? odd(group) : even(group); };
}

void gather(const Group& group) { all_gather_v(at::ones({2, 3}), {.group = group}); }

TEST(Refusals, OneRanksBadArgumentsRaiseTheSameOnEveryRank) {
  const auto said = [&](const Body& odd) { return refusals(3, only_rank_1(gather, odd)); };
  EXPECT_EQ(said([](const Group& g) {
              all_gather_v(at::ones({2, 3}), {.dim = 3, .group = g});
            }),
            same_on_all(3, "all_gather_v: dim=3 is out of range for a 2-d tensor (rank 1)"));
  EXPECT_EQ(said([](const Group& g) {
              all_gather_v(at::ones({2, 3}), {.dim = -3, .group = g});
            }),
            same_on_all(3, "all_gather_v: dim=-3 is out of range for a 2-d tensor (rank 1)"));
  EXPECT_EQ(
      said([](const Group& g) { all_gather_v(at::ones({}), {.group = g}); }),
      same_on_all(
          3, "all_gather_v: x is a 0-d tensor and has no dim to split along: pass x.unsqueeze(0) (rank 1)"));
  EXPECT_EQ(said([](const Group& g) {
              all_gather_v(at::ones({2, 3}).to_sparse(), {.group = g});
            }),
            same_on_all(3, "all_gather_v: x has layout Sparse: only dense (Strided) tensors move (rank 1)"));
}

TEST(Refusals, DisagreementsNameBothSides) {
  const auto said = [&](const Body& odd) { return refusals(3, only_rank_1(gather, odd)); };
  EXPECT_EQ(said([](const Group& g) {
              all_gather_v(at::ones({2, 3}, at::kDouble), {.group = g});
            }),
            same_on_all(3, "all_gather_v: ranks disagree on dtype: float32 on rank 0, float64 on rank 1"));
  EXPECT_EQ(said([](const Group& g) {
              all_gather_v(at::ones({2, 3, 1}), {.group = g});
            }),
            same_on_all(3, "all_gather_v: ranks disagree on number of dims: 2 on rank 0, 3 on rank 1"));
  EXPECT_EQ(said([](const Group& g) {
              all_gather_v(at::ones({2, 4}), {.group = g});
            }),
            same_on_all(3, "all_gather_v: ranks disagree on shape: (*, 3) on rank 0, (*, 4) on rank 1"));
  EXPECT_EQ(said([](const Group& g) {
              all_gather_v(at::ones({2, 3}), {.dim = 1, .group = g});
            }),
            same_on_all(3, "all_gather_v: ranks disagree on dim: 0 on rank 0, 1 on rank 1"));
  EXPECT_EQ(said([](const Group& g) {
              all_gather_v(at::ones({2, 3}), {.grad = Grad::local, .group = g});
            }),
            same_on_all(3, "all_gather_v: ranks disagree on grad: sum on rank 0, local on rank 1"));
  EXPECT_EQ(
      said([](const Group& g) {
        gather_sizes(at::ones({2, 3}), {.group = g});
      }),
      same_on_all(3, "ranks called different collectives: all_gather_v on rank 0, gather_sizes on rank 1"));
}

TEST(Refusals, ReduceScatterVComparesOpAndWholeShape) {
  const auto said = [&](const Body& odd) {
    return refusals(3, only_rank_1(
                           [](const Group& g) {
                             reduce_scatter_v(at::ones({6, 3}), {.group = g});
                           },
                           odd));
  };
  EXPECT_EQ(said([](const Group& g) {
              reduce_scatter_v(at::ones({6, 3}), {.op = Op::max, .group = g});
            }),
            same_on_all(3, "reduce_scatter_v: ranks disagree on op: sum on rank 0, max on rank 1"));
  EXPECT_EQ(said([](const Group& g) {
              reduce_scatter_v(at::ones({5, 3}), {.group = g});
            }),
            same_on_all(3, "reduce_scatter_v: ranks disagree on shape: (6, 3) on rank 0, (5, 3) on rank 1"));
  EXPECT_EQ(
      said([](const Group& g) {
        reduce_scatter_v(at::ones({6, 3}, at::kLong), {.op = Op::avg, .group = g});
      }),
      same_on_all(
          3, "reduce_scatter_v: op='avg' of int64 is not defined: convert to a floating dtype (rank 1)"));
  const at::Tensor leaf = at::ones({6, 3}).requires_grad_();
  EXPECT_EQ(
      said([&](const Group& g) { reduce_scatter_v(leaf, {.op = Op::min, .group = g}); }),
      same_on_all(
          3, "reduce_scatter_v: op='min' has no gradient, but x requires grad: pass x.detach() (rank 1)"));
}

TEST(Refusals, AllToAllVComparesWhatIsSentWithWhatIsExpected) {
  EXPECT_EQ(refusals(3, only_rank_1(
                            [](const Group& g) {
                              all_to_all_v(at::ones({3}), {1, 1, 1}, {.group = g});
                            },
                            [](const Group& g) {
                              all_to_all_v(at::ones({3}), {1, 1, 2}, {.group = g});
                            })),
            same_on_all(3, "all_to_all_v: send_sizes add up to 4, but x has 3 along dim 0 (rank 1)"));
  ASSERT_EQ(setenv("SHARDWAY_CHECK", "1", 1), 0);
  const auto said = refusals(3, [](const Group& g) {
    const Sizes expected = g.rank() == 1 ? Sizes{1, 1, 2} : Sizes{1, 1, 1};
    all_to_all_v(at::ones({3}), {1, 1, 1}, {.recv_sizes = expected, .group = g});
  });
  ASSERT_EQ(unsetenv("SHARDWAY_CHECK"), 0);
  EXPECT_EQ(said,
            same_on_all(
                3, "all_to_all_v: ranks disagree on recv_sizes: rank 2 sends 1 to rank 1, which expects 2"));
}

TEST(Refusals, GivenSizesAreComparedWhenAskedTo) {
  const Body call = [](const Group& g) {
    const Sizes sizes = g.rank() == 1 ? Sizes{2, 2, 3} : Sizes{2, 2, 2};
    all_gather_v(at::ones({2, 3}), {.sizes = sizes, .group = g});
  };
  ASSERT_EQ(setenv("SHARDWAY_CHECK", "1", 1), 0);
  const auto said = refusals(3, call);
  ASSERT_EQ(unsetenv("SHARDWAY_CHECK"), 0);
  EXPECT_EQ(said, same_on_all(
                      3, "all_gather_v: ranks disagree on sizes: (2, 2, 2) on rank 0, (2, 2, 3) on rank 1"));
}

// With sizes given nothing is exchanged: each rank checks its own.
TEST(Refusals, BadSizesAreFoundOnTheRank) {
  const auto sized = [](const Sizes& sizes) {
    return [=](const Group& g) { all_gather_v(at::ones({2, 3}), {.sizes = sizes, .group = g}); };
  };
  EXPECT_EQ(refusals(3, sized({2, 2}))[2], "all_gather_v: sizes has 2 entries for 3 ranks (rank 2)");
  EXPECT_EQ(refusals(3, sized({2, 2, -1}))[0], "all_gather_v: sizes[2]=-1 is negative (rank 0)");
  EXPECT_EQ(refusals(3, sized({5, 5, 5}))[1],
            "all_gather_v: sizes[1]=5 is not this rank's own size, which is 2 along dim 0 (rank 1)");
  EXPECT_EQ(refusals(3,
                     [](const Group& g) {
                       reduce_scatter_v(at::ones({6}), {.sizes = Sizes{1, 2, 4}, .group = g});
                     })[1],
            "reduce_scatter_v: sizes add up to 7, but x has 6 along dim 0 (rank 1)");
}

TEST(Refusals, AnOutThatCannotTakeTheResultRaisesOnEveryRank) {
  const auto said = [&](const std::function<at::Tensor(const at::Tensor&)>& odd_out) {
    return refusals(3, [&](const Group& g) {
      const at::Tensor x = at::ones({2, 3});
      const at::Tensor out = g.rank() == 1 ? odd_out(x) : at::empty({6, 3});
      all_gather_v(x, {.out = out, .group = g});
    });
  };
  EXPECT_EQ(said([](const at::Tensor&) {
              return at::empty({7, 3});
            }),
            same_on_all(3, "all_gather_v: out has extent 7 along dim 0, but the result has 6 (rank 1)"));
  EXPECT_EQ(said([](const at::Tensor&) {
              return at::empty({6, 3}, at::kLong);
            }),
            same_on_all(3, "all_gather_v: out has dtype int64, but x has float32 (rank 1)"));
  EXPECT_EQ(
      said([](const at::Tensor&) {
        return at::empty({6, 4});
      }),
      same_on_all(3, "all_gather_v: out has shape [6, 4], but must have x's extent 3 along dim 1 (rank 1)"));
  EXPECT_EQ(said([](const at::Tensor& x) { return x; }),
            same_on_all(3, "all_gather_v: out overlaps x (rank 1)"));
}

TEST(Refusals, WithoutAGroupBadArgumentsAreValueErrorsToo) {
  EXPECT_THROW(all_gather_v(at::ones({2}), {.dim = 1}), c10::ValueError);
  EXPECT_THROW(all_gather_v(at::ones({})), c10::ValueError);
  EXPECT_THROW(all_gather_v(at::Tensor()), c10::ValueError);
  EXPECT_THROW(all_gather_v(at::ones({2}), {.sizes = Sizes{3}}), c10::ValueError);
  EXPECT_THROW(reduce_scatter_v(at::ones({2}, at::kLong), {.op = Op::avg}), c10::ValueError);
  EXPECT_THROW(all_to_all_v(at::ones({2}), {1, 1}), c10::ValueError);
  EXPECT_THROW(all_to_all_v(at::ones({}), {1}), c10::ValueError);
  EXPECT_THROW(gather_sizes(at::ones({})), c10::ValueError);
  EXPECT_THROW(split_by_rank(Tensors{at::ones({1}), at::ones({1})}), c10::ValueError);
  EXPECT_THROW(split_by_rank(at::ones({1})), c10::ValueError);
}

}  // namespace
}  // namespace shardway::testing
