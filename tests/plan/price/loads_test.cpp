// Two ways to count what every rank sends and receives agree.
#include "plan/price/loads.h"

#include <gtest/gtest.h>

#include <map>

#include "arbitrary_layouts.h"
#include "effort.h"

namespace shardway::testing {
namespace {

// Any layout without Partials; the addends that an exchange combines are said apart.
Layout any_boxes(Dice& dice, const std::vector<int64_t>& shape, const Mesh& mesh) {
  return any_layout(dice, shape, mesh, false);
}

// Some of the mesh dims that do not shard.
DimMask any_resolved(Dice& dice, const Layout& from) {
  DimMask resolved = 0;
  for (size_t m = 0; m < from.placements().size(); ++m) {
    if (from.placements()[m].is_replicate() && dice.one_in(3)) resolved |= 1U << m;
  }
  return resolved;
}

// What one rank sends and receives, as numbers in a row.
using Row = std::vector<double>;

// How many ranks have which loads.
std::map<Row, int64_t> ranks_by_row(const Loads& loads) {
  std::map<Row, int64_t> ranks;
  for (size_t kind = 0; kind < loads.kinds(); ++kind) {
    Row row{loads.copied[kind], loads.combined[kind]};
    for (size_t slot = kind * loads.levels; slot < (kind + 1) * loads.levels; ++slot) {
      row.insert(row.end(), {loads.sent[slot], loads.received[slot], static_cast<double>(loads.sent_to[slot]),
                             static_cast<double>(loads.received_from[slot])});
    }
    ranks[row] += loads.ranks[kind];
  }
  return ranks;
}

// False where hosts do not lie in blocks: then there are no rings.
bool expect_rings_count_pairs(const LayoutPair& pair, DimMask resolved, const Topology& topology) {
  const Mesh& mesh = pair.from.mesh();
  const StateSpace space(pair.from, pair.to, mesh);
  const Network network(topology, mesh, mesh);
  if (network.rings().empty()) return false;
  const StateExchange exchange{.senders = space,
                               .from = space.index_of(pair.from),
                               .receivers = space,
                               .to = space.index_of(pair.to),
                               .resolved = resolved};
  Loads pairs;
  count_pairs(exchange, network, pairs);
  Loads rings;
  OverlapsByBlock sums(network);
  count_rings(exchange, network, sums, rings);
  EXPECT_EQ(ranks_by_row(rings), ranks_by_row(pairs));
  return true;
}

TEST(Loads, CountedByRingsAreThoseCountedByPairs) {
  Dice dice;
  int compared = 0;
  for (int64_t i = 0; i < tries(4000); ++i) {
    const Mesh mesh = any_mesh(dice, 36);
    const std::vector<int64_t> shape = any_tensor_shape(dice, 30);
    const Layout from = any_boxes(dice, shape, mesh);
    const Layout to = any_boxes(dice, shape, mesh);
    const DimMask resolved = any_resolved(dice, from);
    const Topology topology{.ranks_per_host = dice.one_in(2) ? 0 : dice.between(int64_t{1}, mesh.size())};
    SCOPED_TRACE(text_of({from, to}) + ", resolved " + std::to_string(resolved) + ", ranks per host " +
                 std::to_string(topology.ranks_per_host));
    compared += expect_rings_count_pairs({from, to}, resolved, topology) ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(compared, tries(1000));
}

TEST(Loads, CountedByRingsAreThoseCountedByPairsOn4096Ranks) {
  Dice dice;
  const Mesh mesh({16, 16, 16});
  const std::vector<std::vector<int64_t>> shapes{{4096, 4096}, {1000, 77}, {100, 50, 64}};
  for (int64_t i = 0; i < tries(12); ++i) {
    const std::vector<int64_t>& shape = dice.any_of(shapes);
    const Layout from = any_boxes(dice, shape, mesh);
    const Layout to = any_boxes(dice, shape, mesh);
    const DimMask resolved = any_resolved(dice, from);
    const int64_t ranks_per_host = dice.any_of<int64_t>({0, 1, 4, 8, 16, 32, 256, 1024});
    SCOPED_TRACE(text_of({from, to}) + ", resolved " + std::to_string(resolved) + ", ranks per host " +
                 std::to_string(ranks_per_host));
    EXPECT_TRUE(expect_rings_count_pairs({from, to}, resolved, {.ranks_per_host = ranks_per_host}));
    if (HasFailure()) return;
  }
}

TEST(Loads, HostsThatAreNotBlocksOfAMeshDimHaveNoRings) {
  const Mesh mesh({2, 4});
  EXPECT_TRUE(Network(Topology{.ranks_per_host = 3}, mesh, mesh).rings().empty());
  EXPECT_TRUE(Network(Topology{.host_of_rank = {0, 1, 0, 1, 0, 1, 0, 1}}, mesh, mesh).rings().empty());
  EXPECT_FALSE(Network(Topology{.ranks_per_host = 2}, mesh, mesh).rings().empty());
  EXPECT_FALSE(Network(Topology{.ranks_per_host = 4}, mesh, mesh).rings().empty());
  EXPECT_FALSE(Network(Topology{}, mesh, mesh).rings().empty());
}

}  // namespace
}  // namespace shardway::testing
