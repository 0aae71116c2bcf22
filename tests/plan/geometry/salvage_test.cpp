#include "plan/geometry/salvage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "layout_reference.h"
#include "refusal.h"

namespace shardway::testing {
namespace {

using Numbers = std::vector<int64_t>;

Layout rows_on(const Numbers& ranks, int64_t rows = 8) {
  const auto size = static_cast<int64_t>(ranks.size());
  return {{rows}, DType::f32, Mesh({size}, ranks, {}), {shard(0)}};
}

TEST(Salvage, TheExampleOfTheHeader) {
  const Salvage salvage({rows_on({0, 1, 2, 3}), rows_on({1, 2, 3, 0})}, rows_on({0, 2, 3}),
                        GroupRanks({0, 2, 3}));
  EXPECT_TRUE(salvage.lost().empty());
  const std::vector<Route> routes = salvage.routes(0);
  ASSERT_EQ(routes.size(), 2U);
  const Box first_two{.offset = {0}, .extent = {2}};
  EXPECT_EQ(routes[0].pulls, (Moves{{.peer = 0, .mine = first_two, .theirs = first_two}}));
  EXPECT_EQ(
      routes[1].pulls,
      (Moves{{.peer = 1, .mine = {.offset = {2}, .extent = {1}}, .theirs = {.offset = {0}, .extent = {1}}}}));
}

TEST(Salvage, ALostBoxSaysWithWhomItWent) {
  const Layout rows({8, 6}, DType::f32, Mesh({4}), {shard(0)});
  const Layout to({8, 6}, DType::f32, Mesh({3}, {0, 2, 3}, {}), {shard(0)});
  const std::vector<LostBox> lost = Salvage({rows}, to, GroupRanks({0, 2, 3})).lost();
  EXPECT_EQ(lost, (std::vector<LostBox>{{.box = {.offset = {2, 0}, .extent = {2, 6}}, .gone = {1}}}));
  EXPECT_EQ(to_string(lost, rows), "f32[8,6] on 4: S0 has lost [2,4)×[0,6) with rank 1");
}

TEST(Salvage, ACopyIsLostWithItsOwner) {
  const std::vector<Layout> layouts{rows_on({0, 1, 2, 3}), rows_on({1, 2, 3, 0})};
  const std::vector<LostBox> lost = Salvage(layouts, rows_on({0, 3}), GroupRanks({0, 3})).lost();
  EXPECT_EQ(lost, (std::vector<LostBox>{{.box = {.offset = {2}, .extent = {2}}, .gone = {1, 2}}}));
  EXPECT_TRUE(Salvage(layouts, rows_on({0, 2}), GroupRanks({0, 2})).lost().empty());
}

TEST(Salvage, ManyLostBoxesAreAbbreviated) {
  Numbers ranks(16);
  std::iota(ranks.begin(), ranks.end(), 0);
  const Layout rows = rows_on(ranks, 16);
  const std::vector<LostBox> lost = Salvage({rows}, rows_on({15}, 16), GroupRanks({15})).lost();
  EXPECT_EQ(lost.size(), 15U);
  EXPECT_EQ(to_string(lost, rows),
            "f32[16] on 16: S0 has lost [0,1) with rank 0, [1,2) with rank 1, [2,3) with rank 2, [3,4) with "
            "rank 3, and 11 boxes more");
}

// On 2x2 each addend has a replica: ranks 0 and 1 have the first, ranks 2 and 3 the second.
TEST(Salvage, AddendsAreTakenFromWhicheverReplicaLives) {
  const Layout from({6}, DType::f32, Mesh({2, 2}), {partial(), replicate()});
  const auto lost_with = [&](const Numbers& living) {
    const Layout to({6}, DType::f32, Mesh({static_cast<int64_t>(living.size())}, living, {}), {shard(0)});
    return Salvage({from}, to, GroupRanks(living)).lost();
  };
  EXPECT_TRUE(lost_with({1, 2}).empty());
  EXPECT_TRUE(lost_with({0, 1, 3}).empty());
  EXPECT_EQ(lost_with({0, 1}), (std::vector<LostBox>{{.box = Box::whole({6}), .gone = {2, 3}}}));
}

TEST(Salvage, RanksThatLostTheirReplicaAreSpreadOverTheOthers) {
  const Layout from({6}, DType::f32, Mesh({4}), {replicate()});
  const Numbers living{1, 2, 3, 4, 5, 6};  // ranks 4, 5 and 6 have nothing yet
  const Layout to({6}, DType::f32, Mesh({6}, living, {}), {replicate()});
  const Salvage salvage({from}, to, GroupRanks(living));
  std::set<int64_t> read;
  for (int64_t rank = 0; rank < 6; ++rank) {
    const std::vector<Route> routes = salvage.routes(rank);
    ASSERT_EQ(routes[0].pulls.size(), 1U);
    EXPECT_TRUE(rank > 2 || routes[0].pulls[0].peer == rank);
    if (rank > 2) read.insert(routes[0].pulls[0].peer);
  }
  EXPECT_GT(read.size(), 1U);
}

TEST(Salvage, RefusesATargetOnRanksThatAreGone) {
  EXPECT_EQ(refusal_of([] {
              Salvage({rows_on({0, 1})}, rows_on({0, 1}), GroupRanks({0}));
            }),
            "the mesh 2 has rank 1, but the group has the ranks 0");
}

// Copies of one tensor in random layouts on meshes of ranks of which some die.
struct Wreck {
  std::vector<Layout> layouts;
  std::vector<Addends> addends;
  Layout to;
  Numbers living;
};

Wreck any_wreck(Dice& dice) {
  const std::vector<int64_t> shape = any_tensor_shape(dice);
  const Mesh mesh = any_mesh(dice);
  Numbers living = mesh.ranks();
  std::sort(living.begin(), living.end());
  const int64_t dead = dice.between(int64_t{0}, static_cast<int64_t>(living.size()) - 1);
  for (int64_t i = 0; i < dead; ++i)
    living.erase(living.begin() + dice.between(int64_t{0}, static_cast<int64_t>(living.size()) - 1));
  const Mesh rest({static_cast<int64_t>(living.size())}, living, {});
  Wreck wreck{.layouts = {}, .addends = {}, .to = any_layout(dice, shape, rest, false), .living = living};
  wreck.layouts.push_back(any_layout(dice, shape, mesh, true));
  wreck.addends.push_back(any_addends(wreck.layouts[0], dice));
  if (dice.one_in(2)) return wreck;
  // The copy holds the values that the addends add up to.
  const std::vector<Placement> whole(static_cast<size_t>(mesh.ndim()), replicate());
  const Layout value = wreck.layouts[0].with(whole);
  Numbers ranks = mesh.ranks();
  std::rotate(ranks.begin(), ranks.begin() + static_cast<int64_t>(ranks.size()) / 2, ranks.end());
  wreck.layouts.push_back(any_layout(dice, shape, Mesh(mesh.shape(), ranks, {}), false));
  wreck.addends.push_back(combined(wreck.addends[0], wreck.layouts[0], value));
  return wreck;
}

bool lives(const Wreck& wreck, int64_t rank) {
  return std::find(wreck.living.begin(), wreck.living.end(), rank) != wreck.living.end();
}

// Whether some living rank holds the element or, of addends, each of them.
bool is_held(const Wreck& wreck, size_t source, const Index& element) {
  const Layout& layout = wreck.layouts[source];
  std::set<Coordinate> found;
  for (int64_t position = 0; position < layout.mesh().size(); ++position) {
    if (!lives(wreck, layout.mesh().ranks()[static_cast<size_t>(position)])) continue;
    if (!is_inside(element, reference_box(layout, position))) continue;
    Coordinate addend;
    for (const int64_t dim : wreck.addends[source].mesh_dims)
      addend.push_back(coordinate_of(layout.mesh(), position)[static_cast<size_t>(dim)]);
    found.insert(addend);
  }
  return found.size() == wreck.addends[source].by_coordinate.size();
}

std::set<Index> elements_that_nobody_holds(const Wreck& wreck) {
  std::set<Index> lost;
  for (const Index& element : indices_of(Box::whole(wreck.to.shape()))) {
    bool is_anywhere = false;
    for (size_t i = 0; i < wreck.layouts.size(); ++i) is_anywhere = is_anywhere || is_held(wreck, i, element);
    if (!is_anywhere) lost.insert(element);
  }
  return lost;
}

void expect_lost(const Wreck& wreck, const std::set<Index>& elements) {
  std::set<Index> found;
  for (const LostBox& part : Salvage(wreck.layouts, wreck.to, GroupRanks(wreck.living)).lost()) {
    ASSERT_FALSE(part.gone.empty());
    for (const int64_t rank : part.gone) ASSERT_FALSE(lives(wreck, rank));
    for (const Index& element : indices_of(part.box)) ASSERT_TRUE(found.insert(element).second);
  }
  ASSERT_EQ(found, elements);
}

void expect_filled(const Wreck& wreck) {
  const Salvage salvage(wreck.layouts, wreck.to, GroupRanks(wreck.living));
  const auto living = static_cast<int64_t>(wreck.living.size());
  const int64_t ranks = ranks_of(wreck.layouts[0], wreck.to);
  std::vector<std::vector<Route>> routes(wreck.layouts.size());
  for (int64_t rank = 0; rank < living; ++rank) {
    std::vector<Route> of_rank = salvage.routes(rank);
    for (size_t i = 0; i < of_rank.size(); ++i) routes[i].push_back(std::move(of_rank[i]));
  }
  const Addends value = combined(wreck.addends[0], wreck.layouts[0], wreck.to);
  const std::vector<Dense> expected = locals_of(wreck.to, value, ranks);
  std::vector<std::vector<Outcome>> outcomes;
  for (size_t i = 0; i < routes.size(); ++i) {
    const std::vector<Dense> locals = locals_of(wreck.layouts[i], wreck.addends[i], ranks);
    std::vector<Dense> inputs;
    for (const int64_t number : wreck.living) inputs.push_back(locals[static_cast<size_t>(number)]);
    for (const Route& route : routes[i]) validate(route);
    outcomes.push_back(simulate(routes[i], inputs));
  }
  for (size_t rank = 0; rank < wreck.living.size(); ++rank) {
    const Dense& wanted = expected[static_cast<size_t>(wreck.living[rank])];
    for (size_t k = 0; k < wanted.values.size(); ++k) {
      int64_t landings = 0;
      for (const auto& of_source : outcomes) {
        if (of_source[rank].landed.values[k] == 0) continue;
        ++landings;
        ASSERT_EQ(of_source[rank].output.values[k], wanted.values[k]);
      }
      ASSERT_EQ(landings, 1);
    }
  }
}

TEST(Salvage, ThousandsOfRandomWrecksAreFilledOrNameWhatIsLost) {
  Dice dice;
  int64_t filled = 0;
  int64_t short_of = 0;
  for (int64_t i = 0; i < tries(20'000); ++i) {
    const Wreck wreck = any_wreck(dice);
    SCOPED_TRACE(to_string(wreck.layouts[0]) + " to " + to_string(wreck.to));
    const std::set<Index> lost = elements_that_nobody_holds(wreck);
    expect_lost(wreck, lost);
    if (lost.empty()) expect_filled(wreck);
    ++(lost.empty() ? filled : short_of);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(filled, 100);
  EXPECT_GT(short_of, 100);
}

}  // namespace
}  // namespace shardway::testing
