// Calls on pretended hosts: which plan a redistribution takes, and how many messages cross.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "dense_reference.h"
#include "shardway/shardway.h"
#include "thread_hosts.h"

namespace shardway::testing {
namespace {

const Labels kInterleaved = {0, 1, 0, 1};
const Labels kInARow = {0, 0, 1, 1};

at::Tensor part_of(const at::Tensor& whole, const Layout& layout, int64_t rank) {
  return box_of(whole, layout.box_at(*layout.mesh().position_of(rank))).contiguous();
}

TEST(TwoLevelPlans, KnowTheHostsOfTheTensorsGroup) {
  const Layout rows({64, 64}, DType::f32, Mesh({4}), {shard(0)});
  const Layout whole = rows.with({replicate()});
  const at::Tensor x = random_numbers({64, 64}, at::kFloat, 1);
  run_on_hosts({.labels = kInterleaved}, [&](const Group& group) {
    const MeshTensor tensor(part_of(x, rows, group.rank()), rows, group);
    const auto found = plan(tensor, whole);
    EXPECT_TRUE(found->in_two_levels);
    EXPECT_EQ(found->crossing_bytes, 64 * 64 * 4);  // the half of each host, once to the other
    EXPECT_NE(explain(*found).find("in two levels: through memory inside a host; 16.0 KiB in all cross"),
              std::string::npos)
        << explain(*found);
    const auto as_given =
        plan(rows, whole, {.topology = Topology{.host_of_rank = kInterleaved, .two_levels = true}});
    EXPECT_EQ(found->cost_us, as_given->cost_us);
    EXPECT_FALSE(plan(tensor, whole, {.topology = Topology{}})->in_two_levels);
    EXPECT_FALSE(plan(rows, whole)->in_two_levels);
  });
}

TEST(TwoLevelPlans, OfAMeshTensorThatHasNoneAreRefused) {
  const Layout rows({8, 4}, DType::f32, Mesh({4}), {shard(0)});
  run_on_hosts({.labels = kInARow}, [&](const Group& group) {
    const MeshTensor tensor(at::ones({2, 4}), rows, group);
    EXPECT_THROW(plan(tensor, rows.with({partial()})), c10::ValueError);
  });
}

// The bytes that cross in one redistribution of 2 x 2 ranks from S0,R to R,R, agreement included.
int64_t bytes_crossing(const std::optional<Topology>& topology) {
  const Layout rows({512, 512}, DType::f32, Mesh({2, 2}), {shard(0), replicate()});
  const at::Tensor x = random_numbers({512, 512}, at::kFloat, 2);
  Postage postage;
  run_on_hosts({.labels = kInARow, .postage = &postage}, [&](const Group& group) {
    const MeshTensor tensor(part_of(x, rows, group.rank()), rows, group);
    const MeshTensor all = redistribute(tensor, {replicate(), replicate()}, {.topology = topology});
    EXPECT_TRUE(same_bits(all.local(), x));
  });
  return postage.bytes;
}

// Ranks of a host that each ask their own replica on the other host get the same rows twice.
TEST(TwoLevelPlans, AreTakenByARedistributionOfItself) {
  const int64_t least = 512 * 512 * 4;
  EXPECT_LT(bytes_crossing(std::nullopt), least * 11 / 10);
  EXPECT_GT(bytes_crossing(Topology{}), 2 * least);
}

// The messages of one list, agreement included.
int64_t messages_of_list(size_t count, const std::vector<int64_t>& shape, const std::vector<Placement>& from,
                         const std::vector<Placement>& to) {
  Postage postage;
  std::vector<at::Tensor> wholes;
  for (size_t i = 0; i < count; ++i) wholes.push_back(random_numbers(shape, at::kFloat, i));
  const Layout layout(shape, DType::f32, Mesh({4}), from);
  run_on_hosts({.labels = kInterleaved, .postage = &postage}, [&](const Group& group) {
    std::vector<MeshTensor> tensors;
    for (const at::Tensor& whole : wholes)
      tensors.emplace_back(part_of(whole, layout, group.rank()), layout, group);
    const auto moved = redistribute(tensors, std::vector<Layout>(count, layout.with(to)));
    for (size_t i = 0; i < count; ++i) {
      const at::Tensor sum = from[0].is_partial() ? wholes[i] * 4 : wholes[i];
      EXPECT_TRUE(same_bits(moved[i].local(), part_of(sum, moved[i].layout(), group.rank())));
    }
  });
  return postage.messages;
}

TEST(TwoLevelLists, OfSmallTensorsCrossInTheMessagesOfOne) {
  for (const auto& [from, to] :
       {std::pair(shard(0), replicate()), std::pair(shard(0), shard(1)), std::pair(partial(), shard(0))}) {
    const int64_t one = messages_of_list(2, {16, 16}, {from}, {to});
    EXPECT_GT(one, 0);
    EXPECT_EQ(messages_of_list(40, {16, 16}, {from}, {to}), one) << to_string(from) << to_string(to);
  }
}

TEST(TwoLevelLists, OfLargeTensorsArriveTogether) {
  EXPECT_GT(messages_of_list(35, {64, 64}, {shard(0)}, {shard(1)}), 35);
  EXPECT_GT(messages_of_list(35, {64, 64}, {partial()}, {replicate()}), 35);
}

// Four hosts of two ranks: each host gets the tensor once, and the root's sends 1.5 times its bytes, not 3.
TEST(TwoLevelBroadcast, TheOtherHostsHandItOn) {
  const Labels labels = {0, 1, 2, 3, 3, 2, 1, 0};
  constexpr int64_t kBytes = 4 << 20;
  constexpr int64_t kAgreement = 64 << 10;
  const at::Tensor x = random_numbers({kBytes / 4}, at::kFloat, 3);
  for (const int64_t root : {0, 5}) {
    Postage postage;
    run_on_hosts({.labels = labels, .postage = &postage}, [&](const Group& group) {
      const at::Tensor mine = group.rank() == root ? x : at::zeros_like(x);
      EXPECT_TRUE(same_bits(broadcast(mine, {.group_src = root, .group = group}), x));
    });
    EXPECT_GE(postage.bytes, 3 * kBytes);
    EXPECT_LE(postage.bytes, 3 * kBytes + kAgreement);
    EXPECT_LE(postage.bytes_by_rank.at(static_cast<size_t>(root)), kBytes * 3 / 2 + kAgreement);
  }
}

// Sizes that hosts and ranks cannot share alike, on hosts of different sizes, and a tensor in another order.
TEST(TwoLevelBroadcast, OfAnySizeOnAnyHosts) {
  for (const Labels& labels : {Labels{0, 1, 2}, Labels{0, 1, 1, 0, 2, 2, 2}, Labels{2, 0, 1, 0}}) {
    run_on_hosts({.labels = labels}, [&](const Group& group) {
      for (int64_t root = 0; root < group.size(); ++root) {
        const at::Tensor x = random_numbers({257, 259}, at::kFloat, 40 + static_cast<uint64_t>(root)).t();
        const at::Tensor mine = group.rank() == root ? x : at::zeros_like(x);
        EXPECT_TRUE(same_bits(broadcast(mine, {.group_src = root, .group = group}), x)) << root;
      }
    });
  }
}

class TwoLevelAllReduce : public ::testing::TestWithParam<Labels> {
 protected:
  void SetUp() override { host_labels() = GetParam(); }
  void TearDown() override { host_labels().clear(); }

  static Tensors addends(const std::vector<int64_t>& shape, at::ScalarType dtype) {
    Tensors all;
    for (size_t rank = 0; rank < GetParam().size(); ++rank) all.push_back(random_numbers(shape, dtype, rank));
    return all;
  }
  static at::Tensor mine(const Tensors& all, const Group& group) {
    return all[static_cast<size_t>(group.rank())];
  }
};

TEST_P(TwoLevelAllReduce, AddsHostByHostOnEveryRank) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{4099}, std::vector<int64_t>{301, 401}}) {
      const Tensors inputs = addends(shape, dtype);
      for (const Op op : {Op::sum, Op::max, Op::avg}) {
        if (op == Op::avg && dtype == at::kLong) continue;
        const at::Tensor expected = folded(inputs, op);
        run_on_hosts({.labels = GetParam()}, [&](const Group& group) {
          const at::Tensor found = all_reduce(mine(inputs, group), {.op = op, .group = group});
          EXPECT_TRUE(same_bits(found, expected)) << dtype << shape << name_of(op);
        });
      }
    }
  }
}

TEST_P(TwoLevelAllReduce, TakesAnyMemoryAndFillsAnyOut) {
  const Tensors inputs = addends({70, 90}, at::kFloat);
  run_on_hosts({.labels = GetParam()}, [&](const Group& group) {
    for (const Memory memory : {Memory::transposed, Memory::every_second}) {
      const at::Tensor out = empty_in(memory, {70, 90}, at::kFloat);
      all_reduce(in_memory(memory, mine(inputs, group)), {.out = out, .group = group});
      EXPECT_TRUE(same_bits(out, folded(inputs, Op::sum)));
    }
  });
}

TEST_P(TwoLevelAllReduce, OfAListGoesWithOtherRoutes) {
  const Tensors large = addends({5003}, at::kFloat);
  const Tensors small = addends({7}, at::kFloat);
  run_on_hosts({.labels = GetParam()}, [&](const Group& group) {
    const auto reduced = [&](const at::Tensor& x) {
      return all_reduce_route(x.sizes().vec(), group.rank(), group.size());
    };
    const Route of_large = reduced(large[0]);
    const Route of_small = reduced(small[0]);
    const at::Tensor large_out = at::empty_like(large[0]);
    const at::Tensor small_out = at::empty_like(small[0]);
    group.transport()
        .start_all({{.route = &of_large, .x = mine(large, group), .out = large_out},
                    {.route = &of_small, .x = mine(small, group), .out = small_out}},
                   {.mark = 1, .name = "list"})
        ->finish();
    EXPECT_TRUE(same_bits(large_out, folded(large, Op::sum)));
    EXPECT_TRUE(same_bits(small_out, folded(small, Op::sum)));
  });
}

TEST_P(TwoLevelAllReduce, InPiecesHasTheSameBits) {
  const Tensors inputs = addends({(5 << 20) / 4 + 3}, at::kFloat);  // two pieces that differ in length
  const at::Tensor expected = folded(inputs, Op::sum);
  run_on_hosts({.labels = GetParam()}, [&](const Group& group) {
    EXPECT_TRUE(same_bits(all_reduce(mine(inputs, group), {.group = group}), expected));
  });
}

INSTANTIATE_TEST_SUITE_P(, TwoLevelAllReduce,
                         ::testing::Values(Labels{0, 1}, Labels{0, 1, 0, 1}, Labels{0, 0, 0, 1},
                                           Labels{0, 0, 1, 2, 1}));

// The messages of an all-reduce of so many bytes, agreement included.
int64_t messages_of_all_reduce(const Labels& labels, int64_t bytes) {
  const auto hosts = HostMap(labels).hosts();
  Postage postage;
  run_on_hosts({.labels = labels, .postage = &postage},
               [&](const Group& group) { all_reduce(at::ones({bytes / 4}), {.group = group}); });
  EXPECT_GE(postage.bytes, 2 * (hosts - 1) * bytes);
  EXPECT_LE(postage.bytes, 2 * (hosts - 1) * bytes + (64 << 10));
  return postage.messages;
}

// Two hosts of two ranks: one rank of each sends their blocks. In 1 MiB each rank sends its part of its
// host's sum, in 256 KiB one does; no result crosses.
TEST(TwoLevelMessages, OfAnAllReduceBetweenTwoHosts) {
  EXPECT_EQ(messages_of_all_reduce(kInterleaved, 1 << 20), 2 + 4);
  EXPECT_EQ(messages_of_all_reduce(kInterleaved, 256 << 10), 2 + 2);
}

// One rank of each host tells, sends sums and sends results to one of each other.
TEST(TwoLevelMessages, OfASmallAllReduceAmongFourHosts) {
  EXPECT_EQ(messages_of_all_reduce({0, 0, 1, 1, 2, 2, 3, 3}, 256 << 10), 3 * 12);
}

}  // namespace
}  // namespace shardway::testing
