// Calls on pretended hosts: how many messages cross.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "dense_reference.h"
#include "shardway/shardway.h"
#include "thread_hosts.h"

namespace shardway::testing {
namespace {

const Labels kInterleaved = {0, 1, 0, 1};

at::Tensor part_of(const at::Tensor& whole, const Layout& layout, int64_t rank) {
  return box_of(whole, layout.box_at(*layout.mesh().position_of(rank))).contiguous();
}

// The messages of one list, agreement included.
int64_t messages_of_list(size_t count, const std::vector<int64_t>& shape, const std::vector<Placement>& from,
                         const std::vector<Placement>& to) {
  Postage postage;
  std::vector<at::Tensor> wholes;
  for (size_t i = 0; i < count; ++i) wholes.push_back(random_numbers(shape, at::kFloat, i));
  const Layout layout(shape, DType::f32, Mesh({4}), from);
  run_on_hosts(kInterleaved, postage, [&](const Group& group) {
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

}  // namespace
}  // namespace shardway::testing
