// A broadcast in shares: what each rank sends and gets.
#include "plan/hosts/spread_broadcast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace shardway {
namespace {

int64_t elements_in(const Moves& moves) {
  int64_t elements = 0;
  for (const Move& move : moves) elements += move.mine.volume();
  return elements;
}

// The example of the header, with one rank a host.
TEST(SpreadBroadcast, OfTwelveElementsToFourHosts) {
  const HostMap hosts({0, 1, 2, 3});
  const SpreadBroadcast root = spread_broadcast(12, 4, 0, 0, hosts);
  EXPECT_EQ(elements_in(root.shares.pushes), 12 + 9);  // its own copy, and a share of each other host
  EXPECT_EQ(elements_in(root.collection.pushes), 9);
  EXPECT_TRUE(root.collection.pulls.empty());
  const SpreadBroadcast other = spread_broadcast(12, 4, 0, 2, hosts);
  EXPECT_EQ(
      other.shares.pulls,
      (Moves{{.peer = 0, .mine = {.offset = {6}, .extent = {3}}, .theirs = {.offset = {6}, .extent = {3}}}}));
  EXPECT_EQ(elements_in(other.collection.pulls), 9);
  EXPECT_EQ(elements_in(other.collection.pushes), 6);
}

// Every rank gets every element exactly once, and what it pulls is what the other pushes.
TEST(SpreadBroadcast, EveryElementComesOnceToEveryRank) {
  for (const auto& labels : {std::vector<int64_t>{0, 1, 2}, {0, 1, 1, 0, 2, 2, 2}, {4, 3, 4, 2, 1, 3}}) {
    const HostMap hosts(labels);
    for (int64_t root = 0; root < hosts.ranks(); ++root) {
      for (const auto& [elements, bytes] : {std::pair(1, 4), {5, 4}, {1000, 4}, {1000, 4 << 10}}) {
        for (int64_t rank = 0; rank < hosts.ranks(); ++rank) {
          const SpreadBroadcast routes = spread_broadcast(elements, bytes, root, rank, hosts);
          std::vector<int64_t> came(static_cast<size_t>(elements));
          for (const Route* route : {&routes.shares, &routes.collection}) {
            validate(*route);
            for (const Move& pull : route->pulls) {
              const auto begin = came.begin() + pull.mine.offset[0];
              std::for_each(begin, begin + pull.mine.extent[0], [](int64_t& count) { ++count; });
              const SpreadBroadcast theirs = spread_broadcast(elements, bytes, root, pull.peer, hosts);
              const Moves& pushes = (route == &routes.shares ? theirs.shares : theirs.collection).pushes;
              EXPECT_EQ(
                  std::ranges::count(pushes, Move{.peer = rank, .mine = pull.theirs, .theirs = pull.mine}),
                  1);
            }
          }
          EXPECT_EQ(came, std::vector<int64_t>(static_cast<size_t>(elements), 1));
        }
      }
    }
  }
}

TEST(SpreadBroadcast, ASmallOneIsCarriedByTheFirstRankOfEachHost) {
  const HostMap hosts({0, 0, 1, 1, 2, 2, 3, 3});
  EXPECT_EQ(spread_broadcast(8, 4, 0, 0, hosts).shares.pushes.size(), 2U + 3U);  // and both of its own host
  EXPECT_TRUE(spread_broadcast(8, 4, 0, 3, hosts).shares.pulls.empty());
  EXPECT_EQ(spread_broadcast(8, 256 << 10, 0, 0, hosts).shares.pushes.size(), 2U + 6U);
}

}  // namespace
}  // namespace shardway
