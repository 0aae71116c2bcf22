// Lists over ranks that are threads: as each tensor by itself.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <numeric>

#include "dense_reference.h"
#include "shardway/shardway.h"

namespace shardway::testing {
namespace {

class Lists : public ::testing::TestWithParam<int64_t> {
 protected:
  int64_t ranks() const { return GetParam(); }

  Sizes sizes(int64_t unit) const {
    const Sizes all = {2 * unit, 0, 4 * unit, unit};
    return {all.begin(), all.begin() + ranks()};
  }
};

INSTANTIATE_TEST_SUITE_P(, Lists, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kBool,          at::kBFloat16,
                                      at::kLong,  at::kComplexDouble, at::kFloat8_e5m2};

TEST_P(Lists, AreGatheredAsEachByItself) {
  for (const int64_t unit : {1, 1000}) {
    std::vector<Tensors> parts(std::size(kDtypes));
    for (size_t i = 0; i < parts.size(); ++i) {
      for (const int64_t size : sizes(unit))
        parts[i].push_back(random_bits({3, size}, kDtypes[i], 10 * i + parts[i].size()));
    }
    run_as_threads(ranks(), [&](const Group& group) {
      Tensors mine;
      for (const Tensors& of_one : parts) mine.push_back(of_one[static_cast<size_t>(group.rank())]);
      const auto [all, found] = all_gather_v(mine, AllGatherListOptions{.dim = -1, .group = group});
      ASSERT_EQ(all.size(), parts.size());
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_TRUE(same_bits(all[i], at::cat(parts[i], 1))) << kDtypes[i];
        EXPECT_EQ(found[i], sizes(unit));
      }
    });
  }
}

TEST_P(Lists, AreReducedAsEachByItselfAndTheirGradientsAreGathered) {
  for (const int64_t unit : {1, 1000}) {
    const Sizes split = sizes(unit);
    const int64_t total = std::accumulate(split.begin(), split.end(), int64_t{0});
    std::vector<Tensors> addends(2);
    for (int64_t r = 0; r < ranks(); ++r) {
      addends[0].push_back(random_numbers({total}, at::kFloat, static_cast<uint64_t>(r)));
      addends[1].push_back(random_numbers({total, 2}, at::kDouble, static_cast<uint64_t>(9 + r)));
    }
    run_as_threads(ranks(), [&](const Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      const Tensors xs = {addends[0][rank].clone().requires_grad_(),
                          addends[1][rank].clone().requires_grad_()};
      const ReduceScatterListOptions options{.sizes = std::vector{split, split}, .group = group};
      const Tensors parts = reduce_scatter_v(xs, options);
      for (size_t i = 0; i < xs.size(); ++i) {
        const Tensors expected = folded(addends[i], Op::sum).split_with_sizes(split);
        EXPECT_TRUE(same_bits(parts[i].detach(), expected[rank]));
      }
      const auto factor = static_cast<double>(group.rank() + 1);
      (parts[0].sum() * factor + parts[1].sum() * factor).backward();
      Tensors factors;
      for (int64_t r = 0; r < ranks(); ++r)
        factors.push_back(at::full({split[static_cast<size_t>(r)]}, static_cast<double>(r + 1), at::kFloat));
      EXPECT_TRUE(at::equal(xs[0].grad(), at::cat(factors)));
      EXPECT_TRUE(at::equal(xs[1].grad(), at::cat(factors).to(at::kDouble).unsqueeze(1).expand({total, 2})));
    });
  }
}

TEST_P(Lists, AreExchangedCollectedAndHandedOutAsEachByItself) {
  for (const int64_t unit : {1, 1000}) {
    const Sizes split = sizes(unit);
    const int64_t total = std::accumulate(split.begin(), split.end(), int64_t{0});
    std::vector<Tensors> wholes(2);  // by tensor and rank
    for (int64_t r = 0; r < ranks(); ++r) {
      wholes[0].push_back(random_bits({total, 3}, at::kInt, static_cast<uint64_t>(r)));
      wholes[1].push_back(random_bits({total}, at::kBFloat16, static_cast<uint64_t>(9 + r)));
    }
    run_as_threads(ranks(), [&](const Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      const Tensors mine = {wholes[0][rank], wholes[1][rank]};
      const auto [came, came_sizes] = all_to_all_v(mine, {split, split}, AllToAllListOptions{.group = group});
      const int64_t root = ranks() - 1;
      const auto [all, all_sizes] = gather_v(mine, GatherListOptions{.dst = root, .group = group});
      const Tensors parts =
          scatter_v(group.rank() == root ? mine : Tensors{},
                    ScatterListOptions{.src = root, .sizes = std::vector{split, split}, .group = group});
      ASSERT_EQ(parts.size(), mine.size());
      for (size_t i = 0; i < mine.size(); ++i) {
        Tensors blocks;
        for (const at::Tensor& whole : wholes[i]) blocks.push_back(whole.split_with_sizes(split)[rank]);
        EXPECT_TRUE(same_bits(came[i], at::cat(blocks)));
        EXPECT_EQ(came_sizes[i], Sizes(static_cast<size_t>(ranks()), split[rank]));
        EXPECT_TRUE(same_bits(all[i], group.rank() == root ? at::cat(wholes[i]) : mine[i].narrow(0, 0, 0)));
        EXPECT_EQ(all_sizes[i], Sizes(static_cast<size_t>(ranks()), total));
        EXPECT_TRUE(same_bits(parts[i], blocks.back()));
      }
    });
  }
}

}  // namespace
}  // namespace shardway::testing
