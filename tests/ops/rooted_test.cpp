// broadcast, gather_v and scatter_v over ranks that are threads, against dense references.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <numeric>

#include "dense_reference.h"
#include "shardway/shardway.h"

namespace shardway::testing {
namespace {

using torch::autograd::grad;

class Rooted : public ::testing::TestWithParam<int64_t> {
 protected:
  int64_t ranks() const { return GetParam(); }

  // Every rank's turn to be the root.
  void run_with_every_root(const std::function<void(const Group&, int64_t root)>& body) const {
    run_as_threads(ranks(), [&](const Group& group) {
      for (int64_t root = 0; root < ranks(); ++root) body(group, root);
    });
  }

  Sizes sizes() const {
    const Sizes all = {2, 0, 4, 1};
    return {all.begin(), all.begin() + ranks()};
  }

  int64_t total() const {
    const Sizes split = sizes();
    return std::accumulate(split.begin(), split.end(), int64_t{0});
  }

  Tensors parts(std::vector<int64_t> shape, size_t dim, at::ScalarType dtype) const {
    Tensors parts;
    for (const int64_t size : sizes()) {
      shape[dim] = size;
      parts.push_back(random_bits(shape, dtype, 10 + parts.size()));
    }
    return parts;
  }
};

INSTANTIATE_TEST_SUITE_P(, Rooted, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

const at::Tensor& of(const Tensors& tensors, int64_t rank) { return tensors[static_cast<size_t>(rank)]; }

// A width of 5 travels with the header; one of 5000 floats is past its slot.
constexpr int64_t kRowWidths[] = {5, 5000};
constexpr at::ScalarType kMovedDtypes[] = {at::kFloat, at::kBool, at::kBFloat16, at::kComplexDouble,
                                           at::kFloat8_e4m3fn};

at::Tensor without_rows(const at::Tensor& t, int64_t dim) { return t.narrow(dim, 0, 0); }

TEST_P(Rooted, BroadcastGivesEveryRankTheTensorOfSrc) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {0, 2}, {3, 5}, {300, 401}}) {
    for (const at::ScalarType dtype : kMovedDtypes) {
      Tensors inputs;
      for (int64_t r = 0; r < ranks(); ++r)
        inputs.push_back(random_bits(shape, dtype, static_cast<uint64_t>(r)));
      run_with_every_root([&](const Group& group, int64_t root) {
        const at::Tensor x = of(inputs, group.rank()).clone();
        const at::Tensor y = broadcast(x, {.src = root, .group = group});
        EXPECT_TRUE(same_bits(y, of(inputs, root))) << dtype << " from " << root;
        EXPECT_TRUE(same_bits(x, of(inputs, group.rank())));
        EXPECT_EQ(y.is_same(x), ranks() == 1);
        EXPECT_TRUE(
            same_bits(broadcast_async(x, {.group_src = root, .group = group}).wait(), of(inputs, root)));
      });
    }
  }
}

TEST_P(Rooted, GatherVConcatenatesOnDstAndGivesTheOthersNoRows) {
  for (const int64_t width : kRowWidths) {
    for (const at::ScalarType dtype : kMovedDtypes) {
      for (const int64_t dim : {0, 1}) {
        std::vector<int64_t> shape{width, width};
        shape[static_cast<size_t>(1 - dim)] = dim == 0 ? width : 3;
        const Tensors inputs = parts(shape, static_cast<size_t>(dim), dtype);
        const at::Tensor all = at::cat(inputs, dim);
        run_with_every_root([&](const Group& group, int64_t root) {
          const at::Tensor& x = of(inputs, group.rank());
          const at::Tensor expected = group.rank() == root ? all : without_rows(all, dim);
          const auto [y, found] = gather_v(x, {.dst = root, .dim = dim - 2, .group = group});
          EXPECT_TRUE(same_bits(y, expected)) << dtype << " to " << root;
          EXPECT_EQ(found, sizes());
          const GatherOptions known{.group_dst = root, .dim = dim, .sizes = sizes(), .group = group};
          EXPECT_TRUE(same_bits(gather_v(x, known).tensor, expected));
          EXPECT_TRUE(same_bits(gather_v_async(x, known).wait().tensor, expected));
        });
      }
    }
  }
}

TEST_P(Rooted, ScatterVGivesEachRankItsPartWithoutTellingTheOthersAnything) {
  for (const int64_t width : kRowWidths) {
    for (const at::ScalarType dtype : kMovedDtypes) {
      for (const int64_t dim : {0, 1}) {
        std::vector<int64_t> shape{3, width};
        shape[static_cast<size_t>(dim)] = total();
        const at::Tensor whole = random_bits(shape, dtype, 5);
        const Tensors expected = whole.split_with_sizes(sizes(), dim);
        run_with_every_root([&](const Group& group, int64_t root) {
          ScatterOptions options{.src = root, .dim = dim - 2, .group = group};
          std::optional<at::Tensor> x;
          if (group.rank() == root) {
            x = whole;
            options.sizes = sizes();
          }
          EXPECT_TRUE(same_bits(scatter_v(x, options), of(expected, group.rank()))) << dtype << root;
          EXPECT_TRUE(same_bits(scatter_v_async(x, options).wait(), of(expected, group.rank())));
        });
      }
    }
  }
}

TEST_P(Rooted, ScatterVSplitsAsTorchChunkWithoutSizes) {
  for (const int64_t length : {0, 1, 3, 7, 8}) {
    const at::Tensor whole = random_bits({length, 2}, at::kFloat, 1);
    Tensors expected = whole.chunk(ranks());
    expected.resize(static_cast<size_t>(ranks()), at::empty({0, 2}));
    run_as_threads(ranks(), [&](const Group& group) {
      const auto x = group.rank() == 0 ? std::optional(whole) : std::nullopt;
      EXPECT_TRUE(same_bits(scatter_v(x, {.group = group}), of(expected, group.rank()))) << length;
    });
  }
}

// What each rank's upstream gradient is: of its result's shape, unlike the others'.
at::Tensor upstream_of(const at::Tensor& result, int64_t rank) {
  return at::randn(result.sizes(), at::detail::createCPUGenerator(static_cast<uint64_t>(60 + rank)),
                   at::kDouble);
}

TEST_P(Rooted, TheGradientOfBroadcastIsTheSumOnSrcAndZeroElsewhere) {
  for (const int64_t length : {3, 20001}) {
    Tensors upstream;
    for (int64_t r = 0; r < ranks(); ++r)
      upstream.push_back(upstream_of(at::empty({length}, at::kDouble), r));
    run_with_every_root([&](const Group& group, int64_t root) {
      const at::Tensor x = at::ones({length}, at::kDouble).requires_grad_();
      broadcast(x, {.src = root, .group = group}).backward(of(upstream, group.rank()));
      const at::Tensor expected = group.rank() == root ? folded(upstream, Op::sum) : at::zeros_like(x);
      EXPECT_TRUE(at::equal(x.grad(), expected));
    });
  }
}

TEST_P(Rooted, TheGradientOfGatherVIsTheOwnPartOfDsts) {
  run_with_every_root([&](const Group& group, int64_t root) {
    const Sizes split = sizes();
    const at::Tensor x =
        at::ones({3, split[static_cast<size_t>(group.rank())]}, at::kDouble).requires_grad_();
    const at::Tensor y = gather_v(x, {.dst = root, .dim = 1, .group = group}).tensor;
    const at::Tensor at_root = upstream_of(at::empty({3, total()}, at::kDouble), 0);
    y.backward(group.rank() == root ? at_root : at::empty({3, 0}, at::kDouble));
    EXPECT_TRUE(at::equal(x.grad(), of(at_root.split_with_sizes(split, 1), group.rank())));
  });
}

TEST_P(Rooted, TheGradientOfScatterVIsTheConcatenationOnSrc) {
  run_with_every_root([&](const Group& group, int64_t root) {
    const Sizes split = sizes();
    Tensors upstream;
    for (int64_t r = 0; r < ranks(); ++r)
      upstream.push_back(upstream_of(at::empty({split[static_cast<size_t>(r)], 3}, at::kDouble), r));
    ScatterOptions options{.src = root, .group = group};
    std::optional<at::Tensor> x;
    if (group.rank() == root) {
      x = at::ones({total(), 3}, at::kDouble).requires_grad_();
      options.sizes = split;
    }
    const at::Tensor y = scatter_v(x, options);
    EXPECT_TRUE(y.requires_grad());
    y.backward(of(upstream, group.rank()));
    if (x) {
      EXPECT_TRUE(at::equal(x->grad(), at::cat(upstream)));
    }
  });
}

// With f(x) the sum of w y^3, the second gradient along ones is 6 w y where the first is 3 w y^2.
TEST_P(Rooted, TheGradientOfScatterVCanBeDifferentiatedAgain) {
  run_with_every_root([&](const Group& group, int64_t root) {
    const bool is_root = group.rank() == root;
    const at::Tensor x = upstream_of(at::empty({is_root ? 2 * ranks() : 0, 3}), 1).requires_grad_();
    const at::Tensor y = scatter_v(x, {.src = root, .group = group});
    const at::Tensor first = grad({(y * y * y).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    EXPECT_TRUE(at::allclose(first, 3 * x * x));
    EXPECT_TRUE(at::allclose(grad({first}, {x}, {at::ones_like(x)})[0], 6 * x));
  });
}

TEST_P(Rooted, TheModulesDoWhatTheFunctionsDo) {
  const Tensors inputs = parts({2, 3}, 0, at::kFloat);
  run_with_every_root([&](const Group& group, int64_t root) {
    const at::Tensor& x = of(inputs, group.rank());
    nn::Gather gather(GatherOptions{.dst = root, .group = group});
    nn::Scatter scatter(ScatterOptions{.src = root, .group = group});
    const auto [all, found] = gather(x);
    EXPECT_TRUE(same_bits(scatter(all, found), x));
    nn::Broadcast broadcast(BroadcastOptions{.src = root, .group = group});
    EXPECT_TRUE(at::equal(broadcast(at::full({2}, group.rank())), at::full({2}, root)));
    nn::AllReduce all_reduce(AllReduceOptions{.op = Op::max, .group = group});
    EXPECT_TRUE(at::equal(all_reduce(at::full({2}, group.rank())), at::full({2}, ranks() - 1)));
    nn::ReduceScatter reduce_scatter(ReduceScatterOptions{.group = group});
    EXPECT_TRUE(at::equal(reduce_scatter(at::ones({ranks()})), at::full({1}, static_cast<float>(ranks()))));
  });
}

TEST(RootedWithoutAGroup, GiveTheirInputBack) {
  const at::Tensor x = at::ones({3, 2});
  EXPECT_TRUE(broadcast(x).is_same(x));
  EXPECT_TRUE(gather_v(x, {.dim = 1}).tensor.is_same(x));
  EXPECT_EQ(gather_v(x, {.dim = 1}).sizes, (Sizes{2}));
  EXPECT_TRUE(scatter_v(x).is_same(x));
}

}  // namespace
}  // namespace shardway::testing
