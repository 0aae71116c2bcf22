// The ragged collectives over ranks that are threads, against dense references.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <numeric>
#include <thread>

#include "dense_reference.h"
#include "shardway/shardway.h"

namespace sw = shardway;

namespace shardway::testing {
namespace {

class Collectives : public ::testing::TestWithParam<int64_t> {
 protected:
  int64_t ranks() const { return GetParam(); }

  void run(const std::function<void(const Group&)>& body) const { run_as_threads(ranks(), body); }

  // 2, 0, 4, 1 ... rows: ragged, with an empty rank from two ranks on.
  Sizes sizes() const {
    const Sizes all = {2, 0, 4, 1};
    return {all.begin(), all.begin() + ranks()};
  }

  // Every rank's part of a tensor that is split along `dim`.
  Tensors parts(std::vector<int64_t> shape, int64_t dim, at::ScalarType dtype = at::kFloat) const {
    Tensors parts;
    for (int64_t size : sizes()) {
      shape[static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(shape.size()) : dim)] = size;
      parts.push_back(random_bits(shape, dtype, 10 + parts.size()));
    }
    return parts;
  }
};

INSTANTIATE_TEST_SUITE_P(, Collectives, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

const at::Tensor& mine(const Tensors& parts, const Group& group) {
  return parts[static_cast<size_t>(group.rank())];
}

// Send sizes of a rank that gives all its rows to one.
Sizes all_rows_to(int64_t rank, const at::Tensor& x, const Group& group) {
  Sizes sizes(static_cast<size_t>(group.size()), 0);
  sizes[static_cast<size_t>(rank)] = x.size(0);
  return sizes;
}

// A width of 5 travels with the header; one of 5000 floats is past its slot.
constexpr int64_t kWidths[] = {5, 5000};

TEST_P(Collectives, AllGatherVConcatenatesAlongAnyDim) {
  for (const int64_t width : kWidths) {
    for (int64_t dim = -3; dim < 3; ++dim) {
      const Tensors inputs = parts({2, width, 3}, dim);
      const at::Tensor expected = at::cat(inputs, dim);
      run([&](const Group& group) {
        const auto [all, found] = all_gather_v(mine(inputs, group), {.dim = dim, .group = group});
        EXPECT_TRUE(same_bits(all, expected)) << "dim " << dim;
        EXPECT_EQ(found, sizes());
        const auto [again, given] =
            all_gather_v(mine(inputs, group), {.dim = dim, .sizes = sizes(), .group = group});
        EXPECT_TRUE(same_bits(again, expected)) << "dim " << dim;
        EXPECT_EQ(given, sizes());
      });
    }
  }
}

TEST_P(Collectives, AllGatherVOfNoRowsAnywhereIsEmpty) {
  run([&](const Group& group) {
    const auto [all, found] = all_gather_v(at::empty({0, 3}), {.group = group});
    EXPECT_EQ(all.sizes(), (std::vector<int64_t>{0, 3}));
    EXPECT_EQ(found, Sizes(static_cast<size_t>(ranks()), 0));
  });
}

TEST_P(Collectives, AllGatherVTakesOneToSixDims) {
  for (int64_t dims = 1; dims <= 6; ++dims) {
    const Tensors inputs = parts(std::vector<int64_t>(static_cast<size_t>(dims), 2), dims - 1);
    run([&](const Group& group) {
      EXPECT_TRUE(same_bits(all_gather_v(mine(inputs, group), {.dim = -1, .group = group}).tensor,
                            at::cat(inputs, -1)));
    });
  }
}

TEST_P(Collectives, AllGatherVMovesEveryDtype) {
  for (const at::ScalarType dtype :
       {at::kBool, at::kByte, at::kShort, at::kLong, at::kUInt16, at::kUInt64, at::kHalf, at::kBFloat16,
        at::kDouble, at::kComplexFloat, at::kComplexDouble, at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    for (const int64_t width : kWidths) {
      const Tensors inputs = parts({2, width}, 0, dtype);
      run([&](const Group& group) {
        const at::Tensor all = all_gather_v(mine(inputs, group), {.group = group}).tensor;
        EXPECT_TRUE(same_bits(all, at::cat(inputs))) << dtype;
      });
    }
  }
}

TEST_P(Collectives, AllGatherVTakesAnyMemoryFormat) {
  for (const int64_t width : kWidths) {
    const Tensors inputs = parts({2, 3, 2, width}, 0);
    const at::Tensor expected = at::cat(inputs);
    run([&](const Group& group) {
      const at::Tensor& x = mine(inputs, group);
      for (const Memory memory : {Memory::transposed, Memory::every_second, Memory::inside_a_larger_tensor}) {
        EXPECT_TRUE(same_bits(all_gather_v(in_memory(memory, x), {.group = group}).tensor, expected));
      }
      EXPECT_TRUE(same_bits(
          all_gather_v(x.contiguous(at::MemoryFormat::ChannelsLast), {.group = group}).tensor, expected));
      const at::Tensor row = at::ones({1, width});
      const auto [expanded, rows] = all_gather_v(row.expand({group.rank() + 1, width}), {.group = group});
      EXPECT_TRUE(
          same_bits(expanded, at::ones({std::accumulate(rows.begin(), rows.end(), int64_t{0}), width})));
    });
  }
}

TEST_P(Collectives, LazilyConjugatedInputsAreGatheredAsTheirValues) {
  for (const int64_t width : kWidths) {
    const at::Tensor z = random_numbers({2, width}, at::kComplexFloat, 3);
    run([&](const Group& group) {
      const at::Tensor expected = at::cat(Tensors(static_cast<size_t>(ranks()), z.conj())).resolve_conj();
      EXPECT_TRUE(same_bits(all_gather_v(z.conj(), {.group = group}).tensor, expected));
    });
  }
}

TEST_P(Collectives, ReduceScatterVGivesItsPartOfTheCombination) {
  for (const Op op : {Op::sum, Op::avg, Op::min, Op::max, Op::product}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const int64_t width : kWidths) {
        Tensors inputs;
        const Sizes sizes = this->sizes();
        const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
        for (int64_t r = 0; r < ranks(); ++r)
          inputs.push_back(random_numbers({width, total}, dtype, static_cast<uint64_t>(r)));
        const Tensors expected = folded(inputs, op).split_with_sizes(sizes, 1);
        run([&](const Group& group) {
          const at::Tensor part =
              reduce_scatter_v(mine(inputs, group), {.sizes = sizes, .dim = -1, .op = op, .group = group});
          EXPECT_TRUE(same_bits(part, mine(expected, group))) << name_of(op) << " " << dtype;
        });
      }
    }
  }
}

TEST_P(Collectives, ReduceScatterVSplitsAsTorchChunkWithoutSizes) {
  for (const int64_t length : {0, 1, 2, 3, 5, 7, 8, 5000}) {
    Tensors inputs;
    for (int64_t r = 0; r < ranks(); ++r)
      inputs.push_back(random_numbers({length, 2}, at::kDouble, static_cast<uint64_t>(r)));
    Tensors expected = folded(inputs, Op::sum).chunk(ranks());
    expected.resize(static_cast<size_t>(ranks()),
                    at::empty({0, 2}, at::kDouble));  // chunk gives fewer pieces of a short tensor
    run([&](const Group& group) {
      EXPECT_TRUE(same_bits(reduce_scatter_v(mine(inputs, group), {.group = group}), mine(expected, group)))
          << length;
    });
  }
}

TEST_P(Collectives, AllToAllVGivesBlockRToRankR) {
  const auto block = [](int64_t from, int64_t to) { return (2 * from + 3 * to) % 4; };
  for (const int64_t width : kWidths) {
    std::vector<Sizes> sent(static_cast<size_t>(ranks()));
    std::vector<Sizes> received(static_cast<size_t>(ranks()));
    std::vector<Tensors> blocks(static_cast<size_t>(ranks()));  // [from][to]
    for (size_t from = 0; from < sent.size(); ++from) {
      for (size_t to = 0; to < sent.size(); ++to) {
        sent[from].push_back(block(static_cast<int64_t>(from), static_cast<int64_t>(to)));
        received[from].push_back(block(static_cast<int64_t>(to), static_cast<int64_t>(from)));
        blocks[from].push_back(random_bits({width, sent[from][to]}, at::kFloat, 10 * from + to));
      }
    }
    run([&](const Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      Tensors arriving;
      for (const Tensors& row : blocks) arriving.push_back(row[rank]);
      const at::Tensor x = at::cat(blocks[rank], 1);
      for (const bool known : {false, true}) {
        AllToAllOptions options{.dim = 1, .group = group};
        if (known) options.recv_sizes = received[rank];
        const auto [y, recv_sizes] = all_to_all_v(x, sent[rank], options);
        EXPECT_TRUE(same_bits(y, at::cat(arriving, 1)));
        EXPECT_EQ(recv_sizes, received[rank]);
      }
    });
  }
}

TEST_P(Collectives, GatherSizesLetsOtherDimsDiffer) {
  run([&](const Group& group) {
    const int64_t rank = group.rank();
    Sizes expected(static_cast<size_t>(ranks()));
    std::iota(expected.begin(), expected.end(), 2);
    EXPECT_EQ(gather_sizes(at::empty({rank + 7, rank + 2}), {.dim = -1, .group = group}), expected);
    const std::vector<int64_t> ever_more_dims(static_cast<size_t>(rank + 1), rank + 2);
    EXPECT_EQ(gather_sizes(at::empty(ever_more_dims), {.group = group}), expected);
  });
}

TEST_P(Collectives, SplitByRankGivesThisRanksPartAndAllSizes) {
  const Tensors list = parts({2, 3}, 0);
  const at::Tensor stacked = random_bits({ranks(), 2, 3}, at::kFloat, 1);
  run([&](const Group& group) {
    const auto [part, found] = split_by_rank(list, group);
    EXPECT_TRUE(part.is_same(mine(list, group)));
    EXPECT_EQ(found, sizes());
    const auto [slice, equal] = split_by_rank(stacked, group);
    EXPECT_TRUE(same_bits(slice, stacked.select(0, group.rank())));
    EXPECT_EQ(equal, Sizes(static_cast<size_t>(ranks()), 2));
  });
}

TEST_P(Collectives, TheModuleGathers) {
  const Tensors inputs = parts({2, 3}, 1);
  run([&](const Group& group) {
    sw::nn::AllGather gather(sw::AllGatherOptions{.dim = 1, .group = group});
    EXPECT_TRUE(same_bits(gather(mine(inputs, group)).tensor, at::cat(inputs, 1)));
    EXPECT_TRUE(same_bits(gather(mine(inputs, group), sizes()).tensor, at::cat(inputs, 1)));
    EXPECT_TRUE(gather->parameters().empty());
  });
}

// As README and design show it.
TEST_P(Collectives, OptionsAreNamedByDesignatedInitialisers) {
  const Tensors inputs = parts({2, 3}, 0);
  run([&](const Group& world) {
    auto [all, sizes] =
        sw::all_gather_v(mine(inputs, world), {.dim = 0, .grad = sw::Grad::sum, .group = world});
    auto part = sw::reduce_scatter_v(all, {.sizes = sizes, .group = world});
    EXPECT_EQ(part.sizes(), mine(inputs, world).sizes());
  });
}

TEST_P(Collectives, OutTakesTheResult) {
  for (const int64_t width : kWidths) {
    const Tensors inputs = parts({2, width}, 0);
    const at::Tensor all = at::cat(inputs);
    run([&](const Group& group) {
      for (const Memory memory : {Memory::contiguous, Memory::transposed, Memory::every_second}) {
        const at::Tensor out = empty_in(memory, all.sizes().vec(), at::kFloat);
        EXPECT_TRUE(all_gather_v(mine(inputs, group), {.out = out, .group = group}).tensor.is_same(out));
        EXPECT_TRUE(same_bits(out, all));
        const at::Tensor part = empty_in(memory, mine(inputs, group).sizes().vec(), at::kFloat);
        EXPECT_TRUE(reduce_scatter_v(all, {.sizes = sizes(), .op = Op::max, .out = part, .group = group})
                        .is_same(part));
        EXPECT_TRUE(same_bits(part.nan_to_num(), mine(inputs, group).nan_to_num()));
        const at::Tensor gathered =
            empty_in(memory, {group.rank() == 0 ? all.size(0) : 0, width}, at::kFloat);
        const Sizes to_first = all_rows_to(0, mine(inputs, group), group);
        EXPECT_TRUE(all_to_all_v(mine(inputs, group), to_first, {.out = gathered, .group = group})
                        .tensor.is_same(gathered));
        EXPECT_TRUE(same_bits(gathered, group.rank() == 0 ? all : at::empty({0, width})));
      }
    });
  }
}

TEST_P(Collectives, AsyncGivesWhatThePlainCallWouldAsOftenAsAsked) {
  for (const int64_t width : kWidths) {
    const Tensors inputs = parts({2, width}, 0);
    run([&](const Group& group) {
      const at::Tensor all = at::cat(inputs);
      const auto gather = all_gather_v_async(mine(inputs, group), {.sizes = sizes(), .group = group});
      const auto gather_unknown = all_gather_v_async(mine(inputs, group), {.group = group});
      const auto scatter =
          reduce_scatter_v_async(all.nan_to_num(), {.sizes = sizes(), .op = Op::min, .group = group});
      const Sizes to_self = all_rows_to(group.rank(), mine(inputs, group), group);
      const auto exchange =
          all_to_all_v_async(mine(inputs, group), to_self, {.recv_sizes = to_self, .group = group});
      EXPECT_TRUE(
          same_bits(exchange.wait().tensor, mine(inputs, group)));  // in another order than they were started
      EXPECT_TRUE(same_bits(scatter.wait(), mine(inputs, group).nan_to_num()));
      EXPECT_TRUE(same_bits(gather.wait().tensor, all));
      EXPECT_TRUE(gather.wait().tensor.is_same(gather.wait().tensor));
      EXPECT_TRUE(same_bits(gather_unknown.wait().tensor, all));
      EXPECT_EQ(gather_unknown.wait().sizes, sizes());
    });
  }
}

TEST_P(Collectives, AHandleIsCompletedWhenAllHaveComeAndNotBefore) {
  std::promise<void> looked;
  const std::shared_future<void> has_looked = looked.get_future().share();
  run([&](const Group& group) {
    if (group.rank() > 0) has_looked.wait();
    const Sizes one_each(static_cast<size_t>(group.size()), 1);
    const auto started = all_gather_v_async(at::ones({1, 3}), {.sizes = one_each, .group = group});
    if (group.rank() == 0) {
      EXPECT_EQ(started.is_completed(), !group.distributed());
      looked.set_value();
    }
    while (!started.is_completed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(at::equal(started.wait().tensor, at::ones({group.size(), 3})));
    EXPECT_TRUE(started.is_completed());
  });
}

TEST_P(Collectives, AnAsyncCallThatOneRankDropsFinishesByItself) {
  const Tensors inputs = parts({2, 5000}, 0);
  run([&](const Group& group) {
    for (int i = 0; i < 5; ++i) {
      const auto started = all_gather_v_async(mine(inputs, group), {.sizes = sizes(), .group = group});
      if (group.rank() == i % group.size()) continue;
      EXPECT_TRUE(same_bits(started.wait().tensor, at::cat(inputs)));
    }
    EXPECT_TRUE(same_bits(all_gather_v(mine(inputs, group), {.group = group}).tensor, at::cat(inputs)));
  });
}

TEST_P(Collectives, AnInputIsNeitherChangedNorShared) {
  const Tensors inputs = parts({2, 3}, 0);
  run([&](const Group& group) {
    if (!group.distributed()) return;
    const at::Tensor x = mine(inputs, group).clone();
    all_gather_v(x, {.group = group}).tensor.fill_(1);
    all_to_all_v(x, all_rows_to(group.rank(), x, group), {.group = group}).tensor.fill_(1);
    EXPECT_TRUE(same_bits(x, mine(inputs, group)));
    const at::Tensor whole = at::zeros({ranks(), 2});
    reduce_scatter_v(whole, {.group = group}).fill_(1);
    EXPECT_TRUE(same_bits(whole, at::zeros({ranks(), 2})));
  });
}

TEST(PassThrough, WithoutAGroupOrWithOneRankTheInputComesBack) {
  const at::Tensor x = random_bits({3, 2}, at::kFloat, 1);
  const auto check = [&](const Group& group) {
    const auto [all, sizes] = all_gather_v(x, {.dim = -1, .group = group});
    EXPECT_TRUE(all.is_same(x));
    EXPECT_EQ(sizes, (Sizes{2}));
    EXPECT_TRUE(reduce_scatter_v(x, {.op = Op::max, .group = group}).is_same(x));
    EXPECT_TRUE(all_to_all_v(x, {3}, {.group = group}).tensor.is_same(x));
    EXPECT_EQ(all_to_all_v(x, {3}, {.group = group}).sizes, (Sizes{3}));
    EXPECT_EQ(gather_sizes(x, {.dim = 1, .group = group}), (Sizes{2}));
    EXPECT_TRUE(all_gather_v_async(x, {.group = group}).wait().tensor.is_same(x));
    const at::Tensor out = at::empty({3, 2});
    EXPECT_TRUE(all_gather_v(x, {.out = out, .group = group}).tensor.is_same(out));
    EXPECT_TRUE(same_bits(out, x));
  };
  check({});
  run_as_threads(1, check);
}

TEST(PassThrough, ExecuteWithoutAGroupRunsTheMovesOfOneRank) {
  const at::Tensor x = random_bits({3}, at::kFloat, 1);
  const at::Tensor out = at::zeros({3});
  execute(all_gather_route({.shape = {3}, .dim = 0, .sizes = {3}}, 0), x, out, {});
  EXPECT_TRUE(same_bits(out, x));
}

}  // namespace
}  // namespace shardway::testing
