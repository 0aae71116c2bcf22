// all_reduce over ranks that are threads, against a dense fold in rank order.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "dense_reference.h"
#include "shardway/shardway.h"

namespace shardway::testing {
namespace {

class AllReduce : public ::testing::TestWithParam<int64_t> {
 protected:
  int64_t ranks() const { return GetParam(); }

  Tensors addends(const std::vector<int64_t>& shape, at::ScalarType dtype) const {
    Tensors addends;
    for (int64_t r = 0; r < ranks(); ++r)
      addends.push_back(random_numbers(shape, dtype, static_cast<uint64_t>(40 + r)));
    return addends;
  }
};

INSTANTIATE_TEST_SUITE_P(, AllReduce, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

const at::Tensor& own_of(const Tensors& tensors, const Group& group) {
  return tensors[static_cast<size_t>(group.rank())];
}

// One number, few with the header, many past it: the last go by two routes, in shares of unequal size.
const std::vector<std::vector<int64_t>> kShapes = {{}, {0, 3}, {2, 3}, {7, 1, 11111}};

TEST_P(AllReduce, GivesEveryRankTheFoldInRankOrder) {
  for (const auto& shape : kShapes) {
    for (const Op op : {Op::sum, Op::avg, Op::min, Op::max, Op::product}) {
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
        const Tensors inputs = addends(shape, dtype);
        const at::Tensor expected = folded(inputs, op);
        run_as_threads(ranks(), [&](const Group& group) {
          const at::Tensor y = all_reduce(own_of(inputs, group), {.op = op, .group = group});
          EXPECT_TRUE(same_bits(y, expected)) << name_of(op) << " " << dtype << " " << expected.sizes();
          EXPECT_TRUE(y.is_contiguous());
        });
      }
    }
  }
}

TEST_P(AllReduce, TakesEveryDtypeThatCanBeAdded) {
  for (const auto& shape : kShapes) {
    for (const at::ScalarType dtype : {at::kBool, at::kByte, at::kShort, at::kLong, at::kUInt16, at::kUInt64,
                                       at::kComplexFloat, at::kComplexDouble}) {
      const Tensors inputs = addends(shape, dtype);
      Tensors wide = inputs;
      for (at::Tensor& x : wide) {
        if (dtype == at::kUInt16 || dtype == at::kUInt64) x = x.to(at::kLong);
      }
      const at::Tensor expected = folded(wide, Op::sum).to(dtype);
      run_as_threads(ranks(), [&](const Group& group) {
        EXPECT_TRUE(same_bits(all_reduce(own_of(inputs, group), {.group = group}), expected)) << dtype;
      });
    }
  }
}

TEST_P(AllReduce, TakesAnyMemoryAndFillsAnyOut) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3, 4}, std::vector<int64_t>{300, 401}}) {
    const Tensors inputs = addends(shape, at::kFloat);
    const at::Tensor expected = folded(inputs, Op::sum);
    run_as_threads(ranks(), [&](const Group& group) {
      for (const Memory from : {Memory::transposed, Memory::every_second, Memory::inside_a_larger_tensor}) {
        for (const Memory to : {Memory::contiguous, Memory::transposed, Memory::every_second}) {
          const at::Tensor x = in_memory(from, own_of(inputs, group));
          const at::Tensor out = empty_in(to, shape, at::kFloat);
          EXPECT_TRUE(all_reduce(x, {.out = out, .group = group}).is_same(out));
          EXPECT_TRUE(same_bits(out, expected));
          EXPECT_TRUE(same_bits(x, own_of(inputs, group)));
        }
      }
    });
  }
}

// The later routes of a call must not get between the messages of another, however the ranks wait.
TEST_P(AllReduce, AsyncCallsMayBeWaitedForInAnyOrder) {
  const Tensors small = addends({5}, at::kFloat);
  const Tensors large = addends({50001}, at::kFloat);
  run_as_threads(ranks(), [&](const Group& group) {
    const auto first = all_reduce_async(own_of(large, group), {.group = group});
    const auto second = all_reduce_async(own_of(small, group), {.op = Op::max, .group = group});
    const auto third = all_reduce_async(own_of(large, group), {.op = Op::min, .group = group});
    const auto check_first = [&] { EXPECT_TRUE(same_bits(first.wait(), folded(large, Op::sum))); };
    const auto check_rest = [&] {
      EXPECT_TRUE(same_bits(third.wait(), folded(large, Op::min)));
      EXPECT_TRUE(same_bits(second.wait(), folded(small, Op::max)));
      EXPECT_TRUE(same_bits(all_reduce(own_of(large, group), {.group = group}), folded(large, Op::sum)));
    };
    if (group.rank() % 2 == 1) check_rest();
    check_first();
    if (group.rank() % 2 == 0) check_rest();
    EXPECT_TRUE(first.wait().is_same(first.wait()));
  });
}

// Sum: all ranks' gradients; mean: that by the ranks; local: this rank's own. Of avg all by the ranks once
// more.
TEST_P(AllReduce, EachGradModeHasItsDenseFormula) {
  for (const int64_t length : {3, 20001}) {
    const Tensors upstream = addends({length}, at::kDouble);
    const auto n = static_cast<double>(ranks());
    for (const Op op : {Op::sum, Op::avg}) {
      run_as_threads(ranks(), [&](const Group& group) {
        const double share = op == Op::avg ? 1 / n : 1;
        const at::Tensor sum = folded(upstream, Op::sum) * share;
        const at::Tensor own = own_of(upstream, group) * share;
        for (const auto& [grad, expected] :
             {std::pair(Grad::sum, sum), std::pair(Grad::mean, sum / n), std::pair(Grad::local, own)}) {
          const at::Tensor x = at::ones({length}, at::kDouble).requires_grad_();
          all_reduce(x, {.op = op, .grad = grad, .group = group}).backward(own_of(upstream, group));
          EXPECT_TRUE(at::allclose(x.grad(), expected, 1e-12, 1e-12)) << name_of(op);
        }
      });
    }
  }
}

// L = sum over ranks of w_r y^3, y = sum of x: dL/dx = 3 W y^2, and of its product with v: 6 W y V.
TEST_P(AllReduce, TheGradientCanBeDifferentiatedAgain) {
  for (const int64_t length : {3, 20001}) {
    const Tensors inputs = addends({length}, at::kDouble);
    const Tensors weights = addends({length}, at::kDouble);
    const at::Tensor y = folded(inputs, Op::sum);
    const at::Tensor w = folded(weights, Op::sum);
    run_as_threads(ranks(), [&](const Group& group) {
      const at::Tensor x = own_of(inputs, group).clone().requires_grad_();
      const at::Tensor result = all_reduce(x, {.group = group});
      const at::Tensor loss = (own_of(weights, group) * result * result * result).sum();
      const at::Tensor first = torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true)[0];
      EXPECT_TRUE(at::allclose(first, 3 * w * y * y, 1e-9, 1e-9));
      const at::Tensor second = torch::autograd::grad({first}, {x}, {at::ones_like(x)})[0];
      EXPECT_TRUE(at::allclose(second, 6 * w * y * static_cast<double>(ranks()), 1e-9, 1e-9));
    });
  }
}

TEST(AllReduceWithoutAGroup, GivesItsInputBack) {
  const at::Tensor x = at::ones({3}).requires_grad_();
  EXPECT_TRUE(all_reduce(x).is_same(x));
  EXPECT_TRUE(all_reduce_async(x).wait().is_same(x));
  const at::Tensor out = at::empty({3});
  all_reduce(x.detach(), {.out = out});
  EXPECT_TRUE(at::equal(out, x));
}

}  // namespace
}  // namespace shardway::testing
