// One rank's route among 4,096, against the boxes of all of them.
#include <gtest/gtest.h>

#include <algorithm>

#include "dice.h"
#include "layout_reference.h"

namespace shardway::testing {
namespace {

using Boxes = std::vector<Box>;

Box common(const Box& a, const Box& b) {
  Box box;
  for (size_t d = 0; d < a.offset.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    box.offset.push_back(begin);
    box.extent.push_back(std::max<int64_t>(0, end - begin));
  }
  return box;
}

Box seen_from(Box box, const Box& origin) {
  for (size_t d = 0; d < box.offset.size(); ++d) box.offset[d] -= origin.offset[d];
  return box;
}

// Whether the sender is the one of its replicas that the receiver pulls from, on one mesh without Partials.
bool shares_replica(const Layout& from, int64_t sender, int64_t receiver) {
  const Coordinate a = coordinate_of(from.mesh(), sender);
  const Coordinate b = coordinate_of(from.mesh(), receiver);
  for (size_t m = 0; m < a.size(); ++m) {
    if (from.placements()[m].is_replicate() && a[m] != b[m]) return false;
  }
  return true;
}

void expect_route_of_boxes(const Layout& from, const Layout& to, const Boxes& sources, const Boxes& targets,
                           int64_t rank) {
  const Route route = redistribution_route(from, to, rank);
  validate(route);
  const Box& mine_before = sources[static_cast<size_t>(rank)];
  const Box& mine_after = targets[static_cast<size_t>(rank)];
  Moves pulls;
  Moves pushes;
  for (int64_t peer = 0; peer < from.mesh().size(); ++peer) {
    const Box& held = sources[static_cast<size_t>(peer)];
    const Box& wanted = targets[static_cast<size_t>(peer)];
    if (const Box box = common(held, mine_after); box.volume() > 0 && shares_replica(from, peer, rank))
      pulls.push_back({.peer = peer, .mine = seen_from(box, mine_after), .theirs = seen_from(box, held)});
    if (const Box box = common(mine_before, wanted); box.volume() > 0 && shares_replica(from, rank, peer))
      pushes.push_back({.peer = peer, .mine = seen_from(box, mine_before), .theirs = seen_from(box, wanted)});
  }
  EXPECT_EQ(route.pulls, pulls) << "rank " << rank << ": " << placements_text(from) << " → "
                                << placements_text(to);
  EXPECT_EQ(route.pushes, pushes) << "rank " << rank << ": " << placements_text(from) << " → "
                                  << placements_text(to);
}

Layout on_4096(std::vector<Placement> placements, ShardOrder order = {},
               const std::vector<int64_t>& shape = {4096, 8192}) {
  return {shape, DType::bf16, Mesh({16, 16, 16}), std::move(placements), std::move(order)};
}

void expect_routes_of_some_ranks(const Layout& from, const Layout& to) {
  Dice dice;
  const Boxes sources = reference_boxes(from);
  const Boxes targets = reference_boxes(to);
  for (const int64_t rank : {int64_t{0}, int64_t{4095}, dice.between(int64_t{1}, int64_t{4094})})
    expect_route_of_boxes(from, to, sources, targets, rank);
}

TEST(RouteOn4096Ranks, FromAllOnOneTensorDimToAllOnTheOther) {
  const Layout from = on_4096({shard(0), shard(0), shard(0)});
  expect_routes_of_some_ranks(from, from.with({shard(1), shard(1), shard(1)}));
  EXPECT_EQ(redistribution_route(from, from.with({shard(1), shard(1), shard(1)}), 77).pulls.size(), 4096U);
}

TEST(RouteOn4096Ranks, APermutationPullsOneBoxFromOnePeer) {
  const Layout from = on_4096({shard(0), shard(0), shard(0)});
  const Layout to = from.with({shard(0), shard(0), shard(0)}, {{2, 1, 0}, {}});
  expect_routes_of_some_ranks(from, to);
  const Route route = redistribution_route(from, to, 1);  // (0,0,1) now holds what (1,0,0) held
  ASSERT_EQ(route.pulls.size(), 1U);
  EXPECT_EQ(route.pulls[0].peer, 256);
  expect_routes_of_some_ranks(to, from.with({shard(0), shard(0), shard(0)}, {{1, 2, 0}, {}}));
}

TEST(RouteOn4096Ranks, OneMeshDimMovesToAnotherTensorDim) {
  const Layout from = on_4096({shard(0), replicate(), shard(1)});
  const Layout to = from.with({shard(0), replicate(), shard(0)});
  expect_routes_of_some_ranks(from, to);
  EXPECT_EQ(redistribution_route(from, to, 1234).pulls.size(), 16U);
}

TEST(RouteOn4096Ranks, GatheringKeepsToTheReplicaOfARank) {
  const Layout from = on_4096({replicate(), shard(0), shard(1)});
  expect_routes_of_some_ranks(from, from.with({replicate(), replicate(), replicate()}));
  expect_routes_of_some_ranks(from, from.with({shard(1), shard(0), replicate()}));
}

TEST(RouteOn4096Ranks, PeersAreInOrderWhereTheirPartsAreNot) {
  const Layout from = on_4096({shard(0), shard(0), shard(0)}, {{2, 1, 0}, {}});
  expect_routes_of_some_ranks(from, from.with({replicate(), replicate(), replicate()}));
}

TEST(RouteOn4096Ranks, UnevenShapesLeaveRanksEmpty) {
  const std::vector<int64_t> shape{1000, 77};
  const Layout from = on_4096({shard(0), shard(0), shard(0)}, {{0, 2, 1}, {}}, shape);
  expect_routes_of_some_ranks(from, from.with({shard(1), shard(0), shard(1)}));
}

}  // namespace
}  // namespace shardway::testing
