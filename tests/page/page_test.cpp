#include "shardway/page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "page/tiles.h"

namespace shardway::testing {
namespace {

std::shared_ptr<const Plan> plan_on(const Mesh& mesh, std::vector<Placement> from,
                                    std::vector<Placement> to) {
  const Layout layout({65536, 65536}, DType::f32, mesh, std::move(from));
  return plan(layout, layout.with(std::move(to)), {.topology = Topology{}});
}

// The data that the page's script reads.
nlohmann::json scene_in(const std::string& page) {
  const std::string mark = "id=\"scene\">";
  const size_t begin = page.find(mark) + mark.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(Tiling, EveryRankIsInOneTileAndEveryTileInOnePlace) {
  Dice dice;
  for (int64_t i = 0; i < tries(300); ++i) {
    const LayoutPair pair = any_pair(dice);
    SCOPED_TRACE(text_of(pair));
    const Plan plan{.from = pair.from, .to = pair.to};
    const int64_t most = dice.between(int64_t{1}, int64_t{40});
    const page::Tiling tiling = page::tiling_of(plan, most);
    EXPECT_LE(static_cast<int64_t>(tiling.tiles.size()), 2 * most);
    std::multiset<int64_t> ranks;
    std::set<std::pair<int64_t, int64_t>> places;
    for (size_t t = 0; t < tiling.tiles.size(); ++t) {
      const page::RankTile& tile = tiling.tiles[t];
      ranks.insert(tile.ranks.begin(), tile.ranks.end());
      places.emplace(tile.row, tile.column);
      EXPECT_TRUE(tile.row < tiling.rows && tile.column < tiling.columns);
      for (const int64_t rank : tile.ranks)
        EXPECT_EQ(tiling.tile_of_rank[static_cast<size_t>(rank)], static_cast<int64_t>(t));
    }
    std::set<int64_t> expected(pair.from.mesh().ranks().begin(), pair.from.mesh().ranks().end());
    expected.insert(pair.to.mesh().ranks().begin(), pair.to.mesh().ranks().end());
    EXPECT_EQ(ranks, std::multiset<int64_t>(expected.begin(), expected.end()));
    EXPECT_EQ(places.size(), tiling.tiles.size());
  }
}

TEST(Tiling, KeepsTheMeshsRowsAndColumns) {
  const auto columns = [](const Mesh& mesh, int64_t most) {
    const Layout layout({8}, DType::f32, mesh, std::vector<Placement>(mesh.shape().size(), replicate()));
    const page::Tiling tiling = page::tiling_of({.from = layout, .to = layout}, most);
    return std::pair(tiling.rows, tiling.columns);
  };
  EXPECT_EQ(columns(Mesh({2, 4}), 64), std::pair(int64_t{2}, int64_t{4}));
  EXPECT_EQ(columns(Mesh({16, 16, 16}), 64), std::pair(int64_t{4}, int64_t{16}));
  EXPECT_EQ(columns(Mesh({4096}), 64), std::pair(int64_t{8}, int64_t{8}));
}

TEST(Page, ThePictureOfThePricesStandsInAPlaceOfItsOwn) {
  const auto best = plan_on(Mesh({4}), {shard(0)}, {replicate()});
  EXPECT_EQ(to_html(*best).find("id=\"measured\""), std::string::npos);
  const std::string page = to_html(*best, {.measured_svg = "<svg>{{scene}} 7%</svg>"});
  EXPECT_NE(page.find("id=\"measured\""), std::string::npos);
  EXPECT_NE(page.find("charset=utf-8,%3Csvg%3E%7B%7Bscene%7D%7D%207%25%3C%2Fsvg%3E\""), std::string::npos);
  EXPECT_EQ(scene_in(page), scene_in(to_html(*best)));
}

TEST(Page, OfManyRanksIsSmall) {
  const auto cubes =
      plan_on(Mesh({16, 16, 16}), {shard(0), shard(0), shard(1)}, {shard(1), replicate(), shard(0)});
  const auto line = plan_on(Mesh({4096}), {shard(0)}, {replicate()});
  for (const auto& best : {cubes, line}) {
    const std::string page = to_html(*best);
    EXPECT_LT(page.size(), size_t{2} << 20);
    EXPECT_EQ(scene_in(page)["ranks"], 4096);
    EXPECT_LE(scene_in(page)["tiles"].size(), 64U);
  }
}

TEST(Page, InTwoLevelsShowsHostsAndWhatCrosses) {
  const Layout rows({64}, DType::f32, Mesh({4}), {shard(0)});
  const Topology topology{.host_of_rank = {0, 0, 0, 1}, .two_levels = true};
  const auto best = plan(rows, rows.with({replicate()}), {.topology = topology});
  const nlohmann::json scene = scene_in(to_html(*best, {.topology = topology}));
  std::vector<int64_t> hosts;
  for (const auto& tile : scene["tiles"]) hosts.push_back(tile["host"]);
  EXPECT_EQ(hosts, topology.host_of_rank);
  EXPECT_EQ(scene["crossing_bytes"], 64 * 4);  // 48 elements to the second host, 16 to the first
  EXPECT_EQ(scene["steps"][0]["crossing_bytes"], 64 * 4);
  EXPECT_TRUE(scene["steps"][0].contains("us"));

  const nlohmann::json flat = scene_in(to_html(*plan_on(Mesh({4}), {shard(0)}, {replicate()})));
  EXPECT_FALSE(flat.contains("crossing_bytes"));
  EXPECT_FALSE(flat["tiles"][0].contains("host"));
}

TEST(Page, AsksNothingOfTheNetwork) {
  const std::string page = to_html(*plan_on(Mesh({2, 4}), {shard(0), partial()}, {replicate(), shard(1)}));
  for (const char* reference : {" src=", " href=", "url(http", "@import", "fetch(", "XMLHttpRequest"}) {
    EXPECT_EQ(page.find(reference), std::string::npos) << reference;
  }
}

TEST(Page, NamesCannotEndTheScriptThatHoldsThem) {
  const std::string name = "</script><script>alert(1)</script>";
  const auto best = plan_on(Mesh({2, 4}, {name, "tp"}), {shard(0), partial()}, {replicate(), shard(1)});
  const std::string page = to_html(*best);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(scene_in(page)["from"]["mesh"], name + "=2,tp=4");
}

TEST(Page, ShowsTimesOfRanksOnlyWhereTheTopologyGivesThePlansCost) {
  const auto best = plan_on(Mesh({2, 4}), {shard(0), partial()}, {replicate(), shard(1)});
  EXPECT_TRUE(scene_in(to_html(*best, {.topology = Topology{}}))["steps"][0].contains("us"));
  EXPECT_FALSE(scene_in(to_html(*best, {.topology = Topology{.base_us = 1}}))["steps"][0].contains("us"));
}

TEST(Page, ShowsTimesOfRanksWhereCopiesAndReductionsArePriced) {
  const Topology measured{.copy_gib_per_s = 8, .reduce_gib_per_s = 4};
  const Layout from({4096, 4096}, DType::f32, Mesh({2, 4}), {shard(0), partial()});
  const auto best = plan(from, from.with({replicate(), shard(1)}), {.topology = measured});
  EXPECT_TRUE(scene_in(to_html(*best, {.topology = measured}))["steps"][0].contains("us"));
}

TEST(Page, IsMadeOfAnyPlan) {
  Dice dice;
  for (int64_t i = 0; i < tries(300); ++i) {
    const LayoutPair pair = any_pair(dice);
    SCOPED_TRACE(text_of(pair));
    const auto best = plan(pair.from, pair.to, {.topology = Topology{}});
    const nlohmann::json scene = scene_in(to_html(*best, {.topology = Topology{}}));
    EXPECT_EQ(scene["states"].size(), best->steps.size() + 1);
  }
  const Layout scalar({}, DType::f32, Mesh({4}), {partial()});
  EXPECT_EQ(scene_in(to_html(*plan(scalar, scalar.with({replicate()}))))["width"], 1);
}

}  // namespace
}  // namespace shardway::testing
