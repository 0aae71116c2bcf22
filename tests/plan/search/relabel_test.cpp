// Ranks that are chosen for a target's mesh, against every other choice.
#include "plan/search/relabel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "layout_reference.h"
#include "plan/geometry/assignment.h"
#include "refusal.h"
#include "shardway/plan.h"

namespace shardway::testing {
namespace {

Layout on_ranks(const Layout& layout, const std::vector<int64_t>& ranks) {
  const Mesh mesh(layout.mesh().shape(), ranks, layout.mesh().names());
  return layout.with(mesh, layout.placements(), layout.order());
}

// What the rank at a position of `to` holds already of its part, from lists of indices.
int64_t held_bytes_at(const Layout& from, const Layout& to, int64_t position) {
  const auto& ranks = from.mesh().ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), to.mesh().ranks()[static_cast<size_t>(position)]);
  if (found == ranks.end()) return 0;
  const auto held = held_indices(from, found - ranks.begin());
  const auto wanted = held_indices(to, position);
  int64_t volume = 1;
  for (size_t dim = 0; dim < held.size(); ++dim) {
    volume *= std::count_if(wanted[dim].begin(), wanted[dim].end(), [&](int64_t index) {
      return std::find(held[dim].begin(), held[dim].end(), index) != held[dim].end();
    });
  }
  return volume * item_bytes(to.dtype());
}

int64_t held_bytes(const std::vector<AlikeMoves>& moves, const std::vector<int64_t>& ranks) {
  int64_t bytes = 0;
  for (const AlikeMoves& some : moves) {
    const Layout to = on_ranks(some.to, ranks);
    for (int64_t position = 0; position < to.mesh().size(); ++position)
      bytes += some.tensors * held_bytes_at(some.from, to, position);
  }
  return bytes;
}

int64_t kept_places(const std::vector<int64_t>& ranks, const std::vector<int64_t>& given) {
  int64_t kept = 0;
  for (size_t i = 0; i < ranks.size(); ++i) kept += ranks[i] == given[i] ? 1 : 0;
  return kept;
}

// The most bytes that any choice holds and, of these choices, the most places that one keeps.
Worth best_by_trying_all(const std::vector<AlikeMoves>& moves, std::vector<int64_t> candidates) {
  const std::vector<int64_t>& given = moves.front().to.mesh().ranks();
  Worth best;
  std::sort(candidates.begin(), candidates.end());
  do {
    const std::vector<int64_t> ranks(candidates.begin(),
                                     candidates.begin() + static_cast<int64_t>(given.size()));
    best = std::max(best, Worth{held_bytes(moves, ranks), kept_places(ranks, given)});
  } while (std::next_permutation(candidates.begin(), candidates.end()));
  return best;
}

// Two layouts of one tensor, the target without addends, on meshes of at most `most` ranks.
LayoutPair any_free_pair(Dice& dice, int64_t most, const Mesh& to_mesh) {
  const std::vector<int64_t> shape = any_tensor_shape(dice);
  return {any_layout(dice, shape, any_mesh(dice, most), true), any_layout(dice, shape, to_mesh, false)};
}

TEST(Relabel, HoldsAsMuchAsTheBestOfAllChoices) {
  Dice dice;
  for (int64_t i = 0; i < tries(200); ++i) {
    const Mesh mesh = any_mesh(dice, 4);
    std::vector<AlikeMoves> moves;
    for (int64_t tensors = dice.between(int64_t{1}, 3); tensors > 0; --tensors) {
      const LayoutPair pair = any_free_pair(dice, 5, mesh);
      moves.push_back({pair.from, pair.to, dice.between(int64_t{1}, 3)});
    }
    SCOPED_TRACE(text_of({moves.front().from, moves.front().to}));
    std::vector<int64_t> candidates = mesh.ranks();
    for (int64_t more = dice.between(int64_t{0}, 2), rank = 0; more > 0; ++rank) {
      if (std::find(candidates.begin(), candidates.end(), rank) != candidates.end()) continue;
      candidates.push_back(rank);
      --more;
    }
    const std::vector<int64_t> chosen = ranks_that_hold_most(moves, candidates);
    const Worth found{held_bytes(moves, chosen), kept_places(chosen, mesh.ranks())};
    const Worth best = best_by_trying_all(moves, candidates);
    EXPECT_EQ(found.bytes, best.bytes);
    EXPECT_EQ(found.kept, best.kept);
  }
}

TEST(Relabel, SendsTheFewestBytesOfAllChoicesInADirectExchange) {
  Dice dice;
  for (int64_t i = 0; i < tries(200); ++i) {
    const LayoutPair pair = any_free_pair(dice, 6, any_mesh(dice, 4));
    SCOPED_TRACE(text_of(pair));
    const auto sent_to = [&](const std::vector<int64_t>& ranks) {
      int64_t bytes = 0;
      for (const Route& route : routes_between(pair.from, on_ranks(pair.to, ranks))) {
        for (const Move& push : route.pushes) bytes += push.peer == route.rank ? 0 : push.mine.volume();
      }
      return bytes;
    };
    std::vector<int64_t> ranks = pair.to.mesh().ranks();
    const int64_t sent = sent_to(ranks_that_hold_most({{pair.from, pair.to}}, ranks));
    std::sort(ranks.begin(), ranks.end());
    do {
      EXPECT_LE(sent, sent_to(ranks));
    } while (std::next_permutation(ranks.begin(), ranks.end()));
  }
}

TEST(Relabel, OfAPlanSendsNoMoreCostsNoMoreAndSaysWhatItSaved) {
  Dice dice;
  int64_t saved = 0;
  for (int64_t i = 0; i < tries(300); ++i) {
    const LayoutPair pair = any_pair(dice);
    SCOPED_TRACE(text_of(pair));
    const Topology topology = any_topology(dice, 40);
    const auto given = plan(pair.from, pair.to, {.topology = topology});
    const auto chosen = plan(pair.from, pair.to, {.topology = topology, .relabel = Relabel{}});
    ASSERT_TRUE(chosen->relabelling);
    EXPECT_EQ(chosen->relabelling->given_total_bytes, given->total_bytes);
    EXPECT_EQ(chosen->relabelling->total_bytes, chosen->total_bytes);
    EXPECT_EQ(chosen->to, on_ranks(pair.to, chosen->relabelling->ranks));
    EXPECT_LE(chosen->cost_us, given->cost_us);
    EXPECT_EQ(plan_from_json(to_json(*chosen)).relabelling, chosen->relabelling);
    if (chosen->to == pair.to) {
      EXPECT_EQ(chosen->text(), given->text());
    } else {
      EXPECT_LT(chosen->total_bytes, given->total_bytes);
      ++saved;
    }
  }
  EXPECT_GT(saved, 0);
}

TEST(Relabel, FindsThePlacesOfAMeshThatWasTurned) {
  const Layout from({8, 3}, DType::f32, Mesh({4}), {shard(0)});
  const Layout to = from.with(Mesh({4}, {1, 2, 3, 0}, {}), {shard(0)});
  const auto found = plan(from, to, {.topology = Topology{}, .relabel = Relabel{}});
  EXPECT_EQ(found->to, from);
  EXPECT_TRUE(found->steps.empty());
  EXPECT_EQ(found->relabelling->saved_bytes(), 8 * 3 * 4);
  EXPECT_NE(explain(*found).find("relabelled: ranks 0-3 stand where 1-3,0 were given, and all ranks send 0 B "
                                 "instead of 96 B"),
            std::string::npos)
      << explain(*found);
}

TEST(Relabel, ChoosesAmongOtherRanks) {
  const Layout from({8}, DType::f32, Mesh({4}), {shard(0)});
  const Layout to = from.with(Mesh({2}), {shard(0, {2, 6})});
  const auto found = plan(from, to, {.topology = Topology{}, .relabel = Relabel{{5, 3, 2, 1, 0}}});
  EXPECT_EQ(found->to.mesh().ranks().front(), 0);
  EXPECT_EQ(found->relabelling->total_bytes, 4 * 4);  // position 1 has to get four of its six elements
  const Layout outside = from.with(Mesh({2}, {8, 9}, {}), {shard(0, {4, 4})});
  const auto inside = plan(from, outside, {.topology = Topology{}, .relabel = Relabel{{0, 1, 2, 3}}});
  EXPECT_EQ(inside->relabelling->given_total_bytes, 8 * 4);
  EXPECT_EQ(inside->relabelling->total_bytes, 4 * 4);
}

TEST(Relabel, GivesTensorsThatMoveTogetherTheSameRanks) {
  const Mesh turned({2}, {1, 0}, {});
  const Layout large({8}, DType::f32, Mesh({2}), {shard(0)});
  const Layout small({2}, DType::f32, Mesh({2}, {1, 0}, {}), {shard(0)});  // lies as asked
  const auto found =
      relabelled({large, small}, {large.with(turned, {shard(0)}), small}, {}, {.topology = Topology{}});
  ASSERT_EQ(found.relabellings.size(), 1);
  EXPECT_EQ(found.to[0].mesh().ranks(), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(found.to[1].mesh().ranks(), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(found.relabellings[0].given_total_bytes, 8 * 4);
  EXPECT_EQ(found.relabellings[0].total_bytes, 2 * 4);
}

TEST(Relabel, LeavesRanksWhereAddendsStay) {
  const Layout from({8}, DType::f32, Mesh({2, 2}), {partial(), shard(0)});
  const auto found =
      plan(from, from.with({partial(), replicate()}), {.topology = Topology{}, .relabel = Relabel{}});
  EXPECT_EQ(found->relabelling->saved_bytes(), 0);
  EXPECT_NE(explain(*found).find("relabelling saves nothing: the ranks stand where they were given"),
            std::string::npos);
}

TEST(Relabel, RefusesRanksThatAreNoChoice) {
  const Layout from({8}, DType::f32, Mesh({2}), {shard(0)});
  const auto refusal = [&](std::vector<int64_t> among) {
    return refusal_of([&] { plan(from, from, {.relabel = Relabel{std::move(among)}}); });
  };
  EXPECT_EQ(refusal({1}), "relabel: 1 ranks to choose from are too few for a mesh of 2");
  EXPECT_EQ(refusal({1, 1, 2}), "relabel: rank 1 is named twice");
  EXPECT_EQ(refusal({-1, 2}), "relabel: rank -1 is negative");
  std::vector<int64_t> many(1025);
  std::iota(many.begin(), many.end(), 0);
  EXPECT_EQ(refusal(many), "relabel: 1025 ranks to choose from are more than 1024");
  const auto other_shape = [&] {
    plan(from, Layout({9}, DType::f32, Mesh({2}), {shard(0)}), {.relabel = Relabel{}});
  };
  EXPECT_EQ(refusal_of(other_shape), "plan: the shapes differ: 8 and 9");
}

TEST(BestAssignment, IsAsGoodAsTheBestOfAll) {
  Dice dice;
  for (int64_t i = 0; i < tries(300); ++i) {
    const auto rows = static_cast<size_t>(dice.between(int64_t{1}, 5));
    const size_t columns = rows + static_cast<size_t>(dice.between(int64_t{0}, 2));
    WorthTable worths(rows, columns);
    for (size_t row = 0; row < rows; ++row) {
      for (size_t column = 0; column < columns; ++column)
        worths.at(row, column) = {dice.between(int64_t{0}, 6), dice.between(int64_t{0}, 1)};
    }
    const auto worth_of = [&](const std::vector<size_t>& chosen) {
      Worth sum;
      for (size_t row = 0; row < rows; ++row) sum = sum + worths.at(row, chosen[row]);
      return sum;
    };
    std::vector<size_t> all(columns);
    std::iota(all.begin(), all.end(), 0);
    Worth best;
    do {
      best = std::max(best, worth_of(all));
    } while (std::next_permutation(all.begin(), all.end()));
    const std::vector<size_t> found = best_assignment(worths);
    std::vector<size_t> distinct = found;
    std::sort(distinct.begin(), distinct.end());
    EXPECT_EQ(std::unique(distinct.begin(), distinct.end()), distinct.end());
    EXPECT_EQ(worth_of(found), best);
  }
}

// The example of src/plan/geometry/assignment.cpp.
TEST(BestAssignment, MovesARowOnToAnotherColumn) {
  WorthTable worths(2, 2);
  worths.at(0, 0) = {5, 0};
  worths.at(0, 1) = {4, 0};
  worths.at(1, 0) = {5, 0};
  worths.at(1, 1) = {1, 0};
  EXPECT_EQ(best_assignment(worths), (std::vector<size_t>{1, 0}));
}

}  // namespace
}  // namespace shardway::testing
