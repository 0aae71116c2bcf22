// Gradients over ranks that are threads, against autograd of the dense formula in one process.
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

// The result of a rank's collective on its input, and the same for all ranks with plain ATen calls.
using Distributed = std::function<at::Tensor(const at::Tensor& x, const Group& group)>;
using DenseForm = std::function<Tensors(const Tensors& inputs)>;

// Rank r's loss: a cubic, so that the first and the second gradient depend on the data.
at::Tensor loss_of(const at::Tensor& result, size_t rank) {
  const at::Tensor weights =
      random_numbers(result.sizes().vec(), at::kDouble, 70 + rank).sign() * static_cast<double>(rank + 1);
  return (weights * result * result * result).sum();
}

Tensors as_leaves(const Tensors& inputs) {
  Tensors leaves;
  for (const at::Tensor& x : inputs) leaves.push_back(x.detach().clone().requires_grad_());
  return leaves;
}

at::Tensor sum_of(const Tensors& terms) {
  at::Tensor sum = terms[0];
  for (size_t i = 1; i < terms.size(); ++i) sum = sum + terms[i];
  return sum;
}

// What `factor` weighs the second gradient's directions with.
at::Tensor direction(const at::Tensor& like, size_t rank) {
  return at::randn(like.sizes(), at::detail::createCPUGenerator(rank), at::kDouble);
}

struct Gradients {
  Tensors first;
  Tensors second;
};

// d(sum of the losses of all ranks)/dx of each rank, and the gradient of its product with the directions.
Gradients dense_gradients(const Tensors& inputs, const DenseForm& form) {
  const Tensors leaves = as_leaves(inputs);
  Tensors losses;
  for (const at::Tensor& result : form(leaves)) losses.push_back(loss_of(result, losses.size()));
  const Tensors first = grad({sum_of(losses)}, leaves, {}, /*retain_graph=*/true, /*create_graph=*/true);
  Tensors products;
  for (size_t r = 0; r < first.size(); ++r) products.push_back((first[r] * direction(first[r], r)).sum());
  return {.first = first, .second = grad({sum_of(products)}, leaves)};
}

class CollectiveGradients : public ::testing::TestWithParam<int64_t> {
 protected:
  int64_t ranks() const { return GetParam(); }

  Sizes sizes() const {
    const Sizes all = {2, 0, 3, 1};
    return {all.begin(), all.begin() + ranks()};
  }

  int64_t total() const {
    const Sizes s = sizes();
    return std::accumulate(s.begin(), s.end(), int64_t{0});
  }

  // Every rank's part of a 2-d tensor that is split along `dim`.
  Tensors parts(int64_t dim) const {
    Tensors parts;
    for (int64_t size : sizes()) {
      const at::Generator generator = at::detail::createCPUGenerator(20 + parts.size());
      parts.push_back(at::randn(dim == 0 ? std::vector{size, int64_t{3}} : std::vector{int64_t{3}, size},
                                generator, at::kDouble));
    }
    return parts;
  }

  // An addend of the whole from every rank.
  Tensors addends() const {
    Tensors addends;
    for (int64_t r = 0; r < ranks(); ++r) {
      addends.push_back(at::randn({total(), 3}, at::detail::createCPUGenerator(static_cast<uint64_t>(30 + r)),
                                  at::kDouble));
    }
    return addends;
  }

  // First and second gradient of the distributed form equal the dense ones.
  void expect_gradients(const Tensors& inputs, const Distributed& call, const DenseForm& form) const {
    const Gradients expected = dense_gradients(inputs, form);
    run_as_threads(ranks(), [&](const Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      const at::Tensor x = inputs[rank].clone().requires_grad_();
      const at::Tensor first =
          grad({loss_of(call(x, group), rank)}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
      EXPECT_TRUE(at::allclose(first, expected.first[rank], 1e-10, 1e-10)) << "first gradient, rank " << rank;
      const at::Tensor second = grad({(first * direction(first, rank)).sum()}, {x})[0];
      EXPECT_TRUE(at::allclose(second, expected.second[rank], 1e-10, 1e-10))
          << "second gradient, rank " << rank;
    });
  }

  // ⟨Ax, y⟩ = ⟨x, Aᵀy⟩ summed over ranks.
  void expect_adjoint(const Tensors& inputs, const Distributed& call) const {
    std::vector<double> forward(static_cast<size_t>(ranks()));
    std::vector<double> backward(static_cast<size_t>(ranks()));
    run_as_threads(ranks(), [&](const Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      const at::Tensor x = inputs[rank].clone().requires_grad_();
      const at::Tensor result = call(x, group);
      const at::Tensor y = at::randn(result.sizes(), at::detail::createCPUGenerator(80 + rank), at::kDouble);
      forward[rank] = (result * y).sum().item<double>();
      backward[rank] = (x * grad({result}, {x}, {y})[0]).sum().item<double>();
    });
    EXPECT_NEAR(std::accumulate(forward.begin(), forward.end(), 0.0),
                std::accumulate(backward.begin(), backward.end(), 0.0), 1e-10);
  }
};

INSTANTIATE_TEST_SUITE_P(, CollectiveGradients, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

DenseForm concatenation(int64_t dim) {
  return [dim](const Tensors& inputs) { return Tensors(inputs.size(), at::cat(inputs, dim)); };
}

TEST_P(CollectiveGradients, AllGatherVSumsTheGradientsOfAllRanks) {
  for (const int64_t dim : {0, 1}) {
    for (const bool known : {false, true}) {
      AllGatherOptions options{.dim = dim};
      if (known) options.sizes = sizes();
      const Distributed call = [&](const at::Tensor& x, const Group& group) {
        AllGatherOptions here = options;
        here.group = group;
        return all_gather_v(x, here).tensor;
      };
      expect_gradients(parts(dim), call, concatenation(dim));
      expect_adjoint(parts(dim), call);
    }
  }
}

TEST_P(CollectiveGradients, AllGatherVMeanDividesTheSumByTheRanks) {
  const Gradients sum = dense_gradients(parts(0), concatenation(0));
  run_as_threads(ranks(), [&](const Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const at::Tensor x = parts(0)[rank].requires_grad_();
    loss_of(all_gather_v(x, {.grad = Grad::mean, .group = group}).tensor, rank).backward();
    EXPECT_TRUE(at::allclose(x.grad(), sum.first[rank] / ranks(), 1e-10, 1e-10));
  });
}

// The gradient that the rank's own loss has of its own part; the ranks run backward at different times, or
// not at all.
TEST_P(CollectiveGradients, AllGatherVLocalKeepsItsOwnSliceWithoutCommunication) {
  const Tensors inputs = parts(1);
  run_as_threads(ranks(), [&](const Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const at::Tensor x = inputs[rank].clone().requires_grad_();
    const at::Tensor all = all_gather_v(x, {.dim = 1, .grad = Grad::local, .group = group}).tensor;
    if (group.rank() != group.size() - 1) return;
    const Tensors leaves = as_leaves(inputs);
    const at::Tensor expected = grad({loss_of(at::cat(leaves, 1), rank)}, {leaves[rank]}, {}, true, true)[0];
    const at::Tensor first = grad({loss_of(all, rank)}, {x}, {}, true, true)[0];
    EXPECT_TRUE(at::allclose(first, expected, 1e-10, 1e-10));
    const at::Tensor second = grad({first.sum()}, {x})[0];
    EXPECT_TRUE(at::allclose(second, grad({expected.sum()}, {leaves[rank]})[0], 1e-10, 1e-10));
  });
}

TEST_P(CollectiveGradients, ReduceScatterVGathersTheGradients) {
  for (const Op op : {Op::sum, Op::avg}) {
    for (const bool known : {false, true}) {
      const Sizes split = known ? sizes() : chunk_sizes(total(), ranks());
      const Distributed call = [&](const at::Tensor& x, const Group& group) {
        ReduceScatterOptions options{.op = op, .group = group};
        if (known) options.sizes = split;
        return reduce_scatter_v(x, options);
      };
      const auto form = [&](const Tensors& inputs) {
        const at::Tensor sum = sum_of(inputs);
        return (op == Op::avg ? sum / ranks() : sum).split_with_sizes(split);
      };
      expect_gradients(addends(), call, form);
      expect_adjoint(addends(), call);
    }
  }
}

TEST_P(CollectiveGradients, AllToAllVSendsTheGradientsBack) {
  const auto block = [](int64_t from, int64_t to) { return (2 * from + 3 * to + 1) % 3; };
  std::vector<Sizes> sent;
  std::vector<Sizes> received;
  Tensors inputs;
  for (int64_t r = 0; r < ranks(); ++r) {
    sent.emplace_back();
    received.emplace_back();
    for (int64_t peer = 0; peer < ranks(); ++peer) {
      sent.back().push_back(block(r, peer));
      received.back().push_back(block(peer, r));
    }
    const int64_t rows = std::accumulate(sent.back().begin(), sent.back().end(), int64_t{0});
    inputs.push_back(
        at::randn({rows, 2}, at::detail::createCPUGenerator(static_cast<uint64_t>(r)), at::kDouble));
  }
  const auto form = [&](const Tensors& all) {
    std::vector<Tensors> arriving(all.size());
    for (size_t from = 0; from < all.size(); ++from) {
      const Tensors blocks = all[from].split_with_sizes(sent[from]);
      for (size_t to = 0; to < all.size(); ++to) arriving[to].push_back(blocks[to]);
    }
    Tensors results;
    for (const Tensors& blocks : arriving) results.push_back(at::cat(blocks));
    return results;
  };
  for (const bool known : {false, true}) {
    const Distributed call = [&](const at::Tensor& x, const Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      AllToAllOptions options{.group = group};
      if (known) options.recv_sizes = received[rank];
      return all_to_all_v(x, sent[rank], options).tensor;
    };
    expect_gradients(inputs, call, form);
    expect_adjoint(inputs, call);
  }
}

TEST_P(CollectiveGradients, PartsPastTheHeadersSlotHaveThemToo) {
  Tensors inputs;
  for (int64_t size : sizes())
    inputs.push_back(at::randn({size, 4000}, at::detail::createCPUGenerator(inputs.size()), at::kDouble));
  const Distributed call = [](const at::Tensor& x, const Group& group) {
    return all_gather_v(x, {.group = group}).tensor;
  };
  expect_gradients(inputs, call, concatenation(0));
}

TEST_P(CollectiveGradients, AnAsyncResultIsDifferentiable) {
  const Distributed call = [](const at::Tensor& x, const Group& group) {
    const auto started = all_gather_v_async(x, {.group = group});
    started.wait();
    return started.wait().tensor;
  };
  expect_gradients(parts(0), call, concatenation(0));
}

TEST_P(CollectiveGradients, TheModuleIsDifferentiable) {
  const Distributed call = [](const at::Tensor& x, const Group& group) {
    return nn::AllGather(AllGatherOptions{.dim = 1, .group = group})(x).tensor;
  };
  expect_gradients(parts(1), call, concatenation(1));
}

TEST_P(CollectiveGradients, ARankThatNeedsNoGradientStillTakesPartInBackward) {
  const Tensors inputs = parts(0);
  const Gradients expected = dense_gradients(inputs, concatenation(0));
  run_as_threads(ranks(), [&](const Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const bool needs_gradient = group.rank() == group.size() - 1;
    const at::Tensor x = inputs[rank].clone().requires_grad_(needs_gradient);
    const at::Tensor all = all_gather_v(x, {.group = group}).tensor;
    EXPECT_TRUE(all.requires_grad());
    loss_of(all, rank).backward();
    EXPECT_EQ(x.grad().defined(), needs_gradient);
    if (!needs_gradient) return;
    EXPECT_TRUE(at::allclose(x.grad(), expected.first[rank], 1e-10, 1e-10));
  });
}

// sum() gives backward a gradient that is one number seen everywhere.
TEST_P(CollectiveGradients, AnExpandedGradientIsFine) {
  run_as_threads(ranks(), [&](const Group& group) {
    const at::Tensor x = parts(1)[static_cast<size_t>(group.rank())].requires_grad_();
    all_gather_v(x, {.dim = 1, .group = group}).tensor.sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), at::full_like(x, static_cast<double>(ranks()))));
  });
}

TEST_P(CollectiveGradients, OfComplexTensorsAreThoseOfTheDenseForm) {
  run_as_threads(ranks(), [&](const Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    Tensors leaves;
    for (int64_t size : sizes()) {
      leaves.push_back(at::randn({size, 2}, at::detail::createCPUGenerator(leaves.size()), at::kComplexDouble)
                           .requires_grad_());
    }
    const at::Tensor factor = at::randn({total(), 2}, at::detail::createCPUGenerator(99), at::kComplexDouble);
    const auto loss = [&](const at::Tensor& all) { return at::real(all * all * factor).sum(); };
    const at::Tensor expected = grad({loss(at::cat(leaves)) * ranks()}, {leaves[rank]})[0];
    const at::Tensor x = leaves[rank].detach().clone().requires_grad_();
    loss(all_gather_v(x, {.group = group}).tensor).backward();
    EXPECT_TRUE(at::allclose(x.grad(), expected, 1e-10, 1e-10));
  });
}

TEST_P(CollectiveGradients, UnderNoGradNothingIsRecorded) {
  run_as_threads(ranks(), [&](const Group& group) {
    const at::Tensor x = parts(0)[static_cast<size_t>(group.rank())].requires_grad_();
    const at::NoGradGuard guard;
    const at::Tensor all = all_gather_v(x * 2, {.group = group}).tensor;
    EXPECT_FALSE(all.requires_grad());
  });
}

// A training loop that gives the same `out` in every step.
TEST_P(CollectiveGradients, OutMayBeGivenInEveryStep) {
  const Tensors inputs = parts(0);
  const Gradients expected = dense_gradients(inputs, concatenation(0));
  run_as_threads(ranks(), [&](const Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const at::Tensor out = at::empty({total(), 3}, at::kDouble);
    for (int step = 0; step < 2; ++step) {
      const at::Tensor x = inputs[rank].clone().requires_grad_();
      loss_of(all_gather_v(x, {.out = out, .group = group}).tensor, rank).backward();
      EXPECT_TRUE(at::allclose(x.grad(), expected.first[rank], 1e-10, 1e-10)) << "step " << step;
    }
  });
}

TEST(PassThroughGradients, WithoutAGroupGradientsPass) {
  const at::Tensor x = at::ones({3, 2}, at::kDouble).requires_grad_();
  for (const Grad mode : {Grad::sum, Grad::mean, Grad::local}) {
    EXPECT_TRUE(
        at::equal(grad({all_gather_v(x * 3, {.grad = mode}).tensor.sum()}, {x})[0], at::full_like(x, 3)));
  }
  EXPECT_TRUE(at::equal(grad({reduce_scatter_v(x * 3, {.op = Op::avg}).sum()}, {x})[0], at::full_like(x, 3)));
  EXPECT_TRUE(at::equal(grad({all_to_all_v(x * 3, {3}).tensor.sum()}, {x})[0], at::full_like(x, 3)));
}

}  // namespace
}  // namespace shardway::testing
