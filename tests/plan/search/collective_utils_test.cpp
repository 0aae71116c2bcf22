#include "shardway/collective_utils.h"

#include <gtest/gtest.h>

#include <cmath>

#include "refusal.h"

namespace shardway::collective_utils {
namespace {

constexpr double kClose = 1e-9;
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

Layout ten_by_ten(const Placement& placement) { return {{10, 10}, DType::f32, Mesh({4}), {placement}}; }

double cost(const Placement& from, const Placement& to, Rules rules, int64_t devices_per_host = 0) {
  const Layout layout = ten_by_ten(from);
  return redistribute_cost(layout, layout.with({to}),
                           MeshTopoInfo::build_from_mesh(layout.mesh(), devices_per_host), rules);
}

double cost_2d(std::vector<Placement> from, std::vector<Placement> to, Rules rules) {
  const Layout layout({10, 10}, DType::f32, Mesh({2, 2}), std::move(from));
  return redistribute_cost(layout, layout.with(std::move(to)), MeshTopoInfo::build_from_mesh(layout.mesh()),
                           rules);
}

const std::vector<Rules> kBoth{Rules::seed_004, Rules::torch_2_13};

TEST(CollectiveUtils, InsideAHostMissionsFigures) {
  for (const Rules rules : kBoth) {
    EXPECT_NEAR(cost(shard(0), replicate(), rules), 8.403185824, kClose);
    EXPECT_NEAR(cost(partial(), shard(0), rules), 8.403185824, kClose);
    EXPECT_NEAR(cost(shard(0), shard(1), rules), 9.400796456, kClose);
  }
  EXPECT_NEAR(cost(partial(), replicate(), Rules::torch_2_13), 10.206371648, kClose);
  EXPECT_NEAR(cost(partial(), replicate(), Rules::seed_004), 10.807433589, kClose);
}

TEST(CollectiveUtils, AcrossHostsMissionsFigures) {
  for (const Rules rules : kBoth) {
    EXPECT_NEAR(cost(shard(0), replicate(), rules, 1), 14.714481019, kClose);
    EXPECT_NEAR(cost(partial(), shard(0), rules, 1), 14.714481019, kClose);
    EXPECT_NEAR(cost(shard(0), shard(1), rules, 1), 15.703620255, kClose);
  }
  EXPECT_NEAR(cost(partial(), replicate(), Rules::torch_2_13, 1), 22.828962037, kClose);
}

TEST(CollectiveUtils, ThroughThePlannersFrontDoorTheSameFigures) {
  const Layout layout = ten_by_ten(shard(0));
  const PlanOptions one_host{.topology = Topology{}, .rules = Rules::torch_2_13};
  EXPECT_NEAR(shardway::redistribute_cost(layout, layout.with({replicate()}), one_host), 8.403185824, kClose);
  const PlanOptions many{.topology = Topology{.ranks_per_host = 1}, .rules = Rules::seed_004};
  EXPECT_NEAR(shardway::redistribute_cost(layout, layout.with({replicate()}), many), 14.714481019, kClose);
  const PlanOptions seed{.topology = Topology{}, .rules = Rules::seed_004};
  EXPECT_NEAR(shardway::redistribute_cost(layout.with({partial()}), layout.with({replicate()}), seed),
              10.807433589, kClose);
}

TEST(CollectiveUtils, NothingToDoCostsNothing) {
  for (const Rules rules : kBoth) {
    EXPECT_EQ(cost(shard(0), shard(0), rules), 0);
    EXPECT_EQ(cost(replicate(), replicate(), rules), 0);
    EXPECT_EQ(cost(partial(), partial(), rules), 0);
  }
}

// The rule sets keep their own zeros: out of full replication everything is free, even a Partial.
TEST(CollectiveUtils, FullReplicationLeadsAnywhereForNothing) {
  for (const Rules rules : kBoth) {
    EXPECT_EQ(cost(replicate(), shard(0), rules), 0);
    EXPECT_EQ(cost(replicate(), partial(), rules), 0);
    EXPECT_EQ(cost_2d({replicate(), replicate()}, {shard(0), shard(0)}, rules), 0);
  }
}

TEST(CollectiveUtils, FromShardToPartialIsImpossible) {
  for (const Rules rules : kBoth) EXPECT_EQ(cost(shard(0), partial(), rules), kImpossible);
}

TEST(CollectiveUtils, BetweenMeshesIsImpossibleThere) {
  const Layout from = ten_by_ten(shard(0));
  const MeshTopoInfo topo = MeshTopoInfo::build_from_mesh(from.mesh());
  for (const Rules rules : kBoth) {
    EXPECT_EQ(redistribute_cost(from, from.with(Mesh({2, 2}), {shard(0), shard(0)}), topo, rules),
              kImpossible);
    EXPECT_EQ(redistribute_cost(from, from.with(Mesh({4}, {4, 5, 6, 7}, {}), {shard(0)}), topo, rules),
              kImpossible);
  }
}

// The seed's loop has no branch for them: Partial to another Partial and a slice beside a shard cost nothing.
TEST(CollectiveUtils, SeedHasNoPriceForWhatItDoesNotName) {
  EXPECT_EQ(cost(partial(), partial(Op::max), Rules::seed_004), 0);
  EXPECT_EQ(cost(partial(), partial(Op::max), Rules::torch_2_13), kImpossible);
  EXPECT_EQ(cost_2d({shard(0), replicate()}, {shard(0), shard(1)}, Rules::seed_004), 0);
  EXPECT_EQ(cost_2d({shard(0), replicate()}, {shard(0), partial()}, Rules::seed_004), 0);
}

// By hand, as the seed's text goes through the mesh dims from the first, S,S → R,R over 2×2 in one host:
// 400 bytes / 4 shards grow to 200 in the first gather and to 400 in the second.
TEST(CollectiveUtils, SeedGathersFromTheFirstMeshDimOnWithGrowingBytes) {
  const auto gather_us = [](double bytes) { return 6.6 + 0.6 + bytes / kGib * 0.5 / 87.7 * 1e6; };
  EXPECT_NEAR(cost_2d({shard(0), shard(0)}, {replicate(), replicate()}, Rules::seed_004),
              gather_us(200) + gather_us(400), kClose);
  EXPECT_NEAR(cost_2d({partial(), partial()}, {shard(0), shard(0)}, Rules::seed_004),
              gather_us(400) + gather_us(200), kClose);  // a reduce_scatter costs as a gather
}

TEST(CollectiveUtils, AHopOfTheSeedsAllReduceMoreThanTorchs) {
  const MeshTopoInfo topo = MeshTopoInfo::build_from_mesh(Mesh({4}));
  const double bytes_gb = 3.0;
  EXPECT_NEAR(allreduce_cost(bytes_gb, topo, 0, Rules::seed_004),
              6.6 + 7 * 0.6 + bytes_gb * 7 / 4 / 87.7 * 1e6, 1e-6);
  EXPECT_NEAR(allreduce_cost(bytes_gb, topo, 0), 6.6 + 6 * 0.6 + bytes_gb * 6 / 4 / 87.7 * 1e6, 1e-6);
  EXPECT_NEAR(allgather_cost(bytes_gb, topo, 0), 6.6 + 3 * 0.6 + bytes_gb * 3 / 4 / 87.7 * 1e6, 1e-6);
  EXPECT_EQ(reduce_scatter_cost(bytes_gb, topo, 0), allgather_cost(bytes_gb, topo, 0));
}

TEST(CollectiveUtils, FromTheInnermostDimOutwardADimIsBetweenHostsOnceTheHostIsFull) {
  const MeshTopoInfo topo = MeshTopoInfo::build_from_mesh(Mesh({2, 4, 2}), 8);
  EXPECT_EQ(topo.mesh_dim_devices, (std::vector<int64_t>{2, 4, 2}));
  EXPECT_EQ(topo.mesh_dim_latency, (std::vector<double>{2.7, 0.6, 0.6}));
  EXPECT_NEAR(topo.mesh_dim_bandwidth[0], 87.7 * 0.22, 1e-12);
  EXPECT_EQ(topo.mesh_dim_bandwidth[1], 87.7);
  EXPECT_EQ(topo.mesh_dim_bandwidth[2], 87.7);
  EXPECT_EQ(MeshTopoInfo::build_from_mesh(Mesh({2, 4, 2}), 7).mesh_dim_latency,
            (std::vector<double>{2.7, 2.7, 0.6}));
  EXPECT_EQ(MeshTopoInfo::build_from_mesh(Mesh({2, 4, 2})).mesh_dim_latency,
            (std::vector<double>{0.6, 0.6, 0.6}));
}

TEST(CollectiveUtils, GivenFiguresOfAMeshDimStand) {
  const Topology topology{
      .dims = {{"tp", {.latency_us = 1.5, .gib_per_s = 40}}, {"0", {.latency_us = 9, .gib_per_s = 2}}},
      .ranks_per_host = 2};
  const MeshTopoInfo topo = MeshTopoInfo::build_from_mesh(Mesh({2, 2, 2}, {"pp", "dp", "tp"}), topology);
  EXPECT_EQ(topo.mesh_dim_latency, (std::vector<double>{9, 2.7, 1.5}));
  EXPECT_EQ(topo.mesh_dim_bandwidth[0], 2);
  EXPECT_EQ(topo.mesh_dim_bandwidth[2], 40);
}

TEST(CollectiveUtils, BytesAreOfTheWholeTensor) {
  EXPECT_EQ(spec_to_bytes(ten_by_ten(shard(0))), 400);
  EXPECT_EQ(spec_to_bytes(Layout({3, 5}, DType::bf16, Mesh({2}), {partial()})), 30);
  EXPECT_EQ(spec_to_bytes(Layout({}, DType::c128, Mesh({2}), {replicate()})), 16);
}

TEST(CollectiveUtils, OurOwnRulesAreAskedElsewhere) {
  const Layout layout = ten_by_ten(shard(0));
  EXPECT_TRUE(shardway::testing::refuses_with(
      [&] {
        redistribute_cost(layout, layout.with({replicate()}), MeshTopoInfo::build_from_mesh(layout.mesh()),
                          Rules::shardway);
      },
      "seed_004", "torch_2_13"));
  EXPECT_EQ(rules_from_name("seed_004"), Rules::seed_004);
  EXPECT_EQ(rules_from_name("torch_2_13"), Rules::torch_2_13);
  EXPECT_TRUE(shardway::testing::refuses_with([] { rules_from_name("torch"); }, "torch", "seed_004"));
}

}  // namespace
}  // namespace shardway::collective_utils
