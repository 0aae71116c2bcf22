// The collectives along a mesh dim over ranks that are threads, against at::cat and at::chunk.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "shardway/shardway.h"

namespace shardway::testing {
namespace {

using namespace collective_utils;

class MeshCollectives : public ::testing::TestWithParam<int64_t> {};

INSTANTIATE_TEST_SUITE_P(, MeshCollectives, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

// Rank r's rows of a tensor of `columns` columns: r + 1 of them, or none on rank 1.
at::Tensor rows_of(int64_t rank, int64_t columns) {
  const int64_t rows = rank == 1 ? 0 : rank + 1;
  return at::arange(rows * columns, at::kDouble).reshape({rows, columns}) + 100.0 * static_cast<double>(rank);
}

at::Tensor all_rows(int64_t ranks, int64_t columns) {
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < ranks; ++rank) parts.push_back(rows_of(rank, columns));
  return at::cat(parts);
}

at::Tensor columns_of(const at::Tensor& whole, int64_t rank, int64_t ranks) {
  const std::vector<at::Tensor> parts = whole.chunk(ranks, 1);
  if (rank < static_cast<int64_t>(parts.size())) return parts[static_cast<size_t>(rank)];
  return whole.narrow(1, 0, 0);
}

TEST_P(MeshCollectives, AllToAllTurnsRowsIntoColumnsWithGradients) {
  const int64_t ranks = GetParam();
  run_as_threads(ranks, [&](const Group& group) {
    for (const int64_t columns : {1, 5, 300}) {
      const at::Tensor whole = all_rows(ranks, columns);
      const at::Tensor x = rows_of(group.rank(), columns).requires_grad_();
      const Mesh mesh({ranks});
      const at::Tensor y = shard_dim_alltoall(x, 0, 1, mesh, 0, group);
      EXPECT_TRUE(at::equal(y, columns_of(whole, group.rank(), ranks)));
      EXPECT_TRUE(at::equal(shard_dim_alltoall_async(x, 0, -1, mesh, 0, group).wait(), y));
      y.backward(columns_of(2 * whole, group.rank(), ranks));
      EXPECT_TRUE(at::equal(x.grad(), 2 * x.detach()));
    }
  });
}

TEST_P(MeshCollectives, MetaTensorsGiveShapesAndCommunicateNothing) {
  const int64_t ranks = GetParam();
  run_as_threads(ranks, [&](const Group& group) {
    if (group.rank() != 0) return;
    const at::Tensor x = at::empty({2, 8}, at::device(at::kMeta));
    const at::Tensor y = shard_dim_alltoall(x, 0, 1, Mesh({ranks}), 0, group);
    EXPECT_TRUE(y.is_meta());
    EXPECT_EQ(y.sizes(), at::IntArrayRef({2 * ranks, (8 + ranks - 1) / ranks}));
    EXPECT_FALSE(mesh_broadcast(x, Mesh({ranks}), {.async_op = true, .group = group}));
  });
}

TEST_P(MeshCollectives, ScatterAndBroadcastStartAtTheSource) {
  const int64_t ranks = GetParam();
  run_as_threads(ranks, [&](const Group& group) {
    const Mesh mesh({ranks});
    std::vector<at::Tensor> list;
    for (int64_t rank = 0; rank < ranks; ++rank) list.push_back(rows_of(rank, 3));
    for (int64_t source = 0; source < ranks; ++source) {
      const at::Tensor output = at::zeros_like(rows_of(group.rank(), 3));
      const bool sends = group.rank() == source;
      const auto work = mesh_scatter(output, sends ? list : std::vector<at::Tensor>{}, mesh,
                                     {.async_op = true, .group_src = source, .group = group});
      ASSERT_TRUE(work);
      EXPECT_TRUE(work->wait());
      EXPECT_TRUE(at::equal(output, rows_of(group.rank(), 3)));

      const at::Tensor tensor = at::full({2, 2}, static_cast<double>(group.rank()));
      EXPECT_FALSE(mesh_broadcast(tensor, mesh, {.group_src = source, .group = group}));
      EXPECT_TRUE(at::equal(tensor, at::full({2, 2}, static_cast<double>(source))));
    }
  });
}

TEST_P(MeshCollectives, AMistakeOfOneRankIsAnErrorOnAll) {
  const int64_t ranks = GetParam();
  run_as_threads(ranks, [&](const Group& group) {
    const Mesh mesh({ranks});
    const int64_t dim = group.rank() == 0 ? 7 : 0;
    EXPECT_THROW(shard_dim_alltoall(at::ones({2, 2}), dim, 1, mesh, 0, group), c10::ValueError);
    EXPECT_THROW(mesh_scatter(at::ones({2}), {}, mesh, {.group = group}), c10::ValueError);
    EXPECT_EQ(shard_dim_alltoall(at::ones({1, ranks}), 0, 1, mesh, 0, group).numel(), ranks);
  });
}

TEST(Padding, IsUndoneAndGrowsLists) {
  const at::Tensor x = at::arange(6, at::kDouble).reshape({2, 3});
  const at::Tensor padded = pad_tensor(x, -1, 2);
  EXPECT_TRUE(at::equal(padded, at::cat({x, at::zeros({2, 2}, at::kDouble)}, 1)));
  EXPECT_TRUE(at::equal(unpad_tensor(padded, 1, 2), x));
  EXPECT_TRUE(pad_tensor(x, 0, 0).is_same(x));
  const std::vector<at::Tensor> shards = fill_empty_tensor_to_shards({x}, 1, 2);
  ASSERT_EQ(shards.size(), 3U);
  EXPECT_EQ(shards[2].sizes(), at::IntArrayRef({2, 0}));
  EXPECT_THROW(unpad_tensor(x, 0, 3), c10::ValueError);
}

}  // namespace
}  // namespace shardway::testing
