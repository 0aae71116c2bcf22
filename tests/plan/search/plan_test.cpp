#include "shardway/plan.h"

#include <gtest/gtest.h>

#include <thread>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "refusal.h"

namespace shardway::testing {
namespace {

Layout on_2x2x2(std::vector<Placement> placements, const std::vector<int64_t>& shape = {64, 64}) {
  return {shape, DType::f32, Mesh({2, 2, 2}), std::move(placements)};
}

// The number in "the least is N bytes".
int64_t least_in(const std::string& message) {
  const std::string words = "the least is ";
  const size_t at = message.find(words);
  EXPECT_NE(at, std::string::npos) << message;
  return at == std::string::npos ? -1 : std::stoll(message.substr(at + words.size()));
}

TEST(PlanWithMaxBytes, NeedsNoMoreAndCostsNoLess) {
  Dice dice;
  for (int64_t i = 0; i < tries(1000); ++i) {
    const LayoutPair pair = any_pair(dice);
    SCOPED_TRACE(text_of(pair));
    const Topology topology = any_topology(dice, 40);
    const auto free = plan(pair.from, pair.to, {.topology = topology});
    EXPECT_EQ(plan(pair.from, pair.to, {.topology = topology, .max_bytes = free->peak_bytes})->text(),
              free->text());
    const int64_t limit = dice.between(int64_t{0}, free->peak_bytes);
    const std::string refusal = refusal_of([&] {
      const auto bound = plan(pair.from, pair.to, {.topology = topology, .max_bytes = limit});
      EXPECT_LE(bound->peak_bytes, limit);
      EXPECT_GE(bound->cost_us, free->cost_us - 1e-9);
      for (const Step& step : bound->steps) EXPECT_LE(step.peak_bytes, limit);
    });
    if (!refusal.empty()) {
      EXPECT_GT(least_in(refusal), limit);
    }
  }
}

TEST(PlanWithMaxBytes, IsPossibleWithTheLeastThatItNamesAndWithNoByteLess) {
  Dice dice;
  int refused = 0;
  for (int64_t i = 0; i < tries(1000); ++i) {
    const LayoutPair pair = any_pair(dice);
    SCOPED_TRACE(text_of(pair));
    const auto with = [&](int64_t bytes) {
      return refusal_of([&] { plan(pair.from, pair.to, {.topology = Topology{}, .max_bytes = bytes}); });
    };
    const std::string refusal = with(0);
    if (refusal.empty()) continue;  // nothing to do, or nothing to hold
    ++refused;
    EXPECT_NE(refusal.find("impossible"), std::string::npos) << refusal;
    const int64_t least = least_in(refusal);
    EXPECT_EQ(with(least), "");
    EXPECT_EQ(least_in(with(least - 1)), least);
  }
  EXPECT_GT(refused, tries(500));
}

// Three addends of one element: an exchange keeps two foreign ones beside input and output, an all_reduce
// one.
TEST(PlanWithMaxBytes, TheLeastMayBeThatOfAnAllReduce) {
  const Layout from({1}, DType::f32, Mesh({3}), {partial()});
  const auto with = [&](int64_t bytes) {
    return refusal_of(
        [&] { plan(from, from.with({replicate()}), {.topology = Topology{}, .max_bytes = bytes}); });
  };
  EXPECT_EQ(with(12), "");
  EXPECT_EQ(least_in(with(0)), 12);
}

// A direct gather holds the input and the whole; a tight bound leaves nothing else either.
TEST(PlanWithMaxBytes, SaysWhatIsInTheWay) {
  const Layout from = on_2x2x2({shard(0), shard(0), shard(0)});
  const Layout to = on_2x2x2({replicate(), replicate(), replicate()});
  EXPECT_TRUE(refuses_with([&] { plan(from, to, {.topology = Topology{}, .max_bytes = 100}); }, "impossible",
                           "max_bytes=100", "S0,S0,S0", "R,R,R", "the least is"));
  // 64·64 elements of 4 bytes, and an eighth of them
  EXPECT_EQ(least_in(refusal_of([&] { plan(from, to, {.topology = Topology{}, .max_bytes = 100}); })),
            64 * 64 * 4 + 64 * 64 * 4 / 8);
  EXPECT_TRUE(
      refuses_with([&] { plan(from, to, {.topology = Topology{}, .max_bytes = -1}); }, "max_bytes=-1"));
}

TEST(Plan, IsTheSameTextWhateverWasAskedBefore) {
  Dice dice;
  std::vector<LayoutPair> pairs;
  for (int64_t i = 0; i < tries(300); ++i)
    pairs.push_back(any_pair_on(dice, {dice.between(int64_t{1}, int64_t{9}), 6}, Mesh({2, 2, 2})));
  const auto texts = [&] {
    clear_plans();
    std::map<std::string, std::string> texts;
    for (const LayoutPair& pair : pairs) {
      const auto made = plan(pair.from, pair.to, {.topology = Topology{.ranks_per_host = 2}});
      texts[text_of(pair)] = to_json(*made);
    }
    return texts;
  };
  const auto first = texts();
  dice.shuffle(pairs);
  EXPECT_EQ(texts(), first);
}

TEST(Plan, IsTheSameHoweverItsLayoutsWereMade) {
  const Mesh mesh({2, 2});
  const Layout from({8, 8}, DType::f32, mesh, {shard(0), shard(1)});
  const Layout to({8, 8}, DType::f32, Mesh({2, 2}, {0, 1, 2, 3}, {}), {shard(1), shard(0)}, {{1}, {0}});
  const std::string text = plan(from, to, {.topology = Topology{}})->text();
  clear_plans();
  EXPECT_EQ(plan(from.with({shard(0), shard(1)}), from.with({shard(1), shard(0)}), {.topology = Topology{}})
                ->text(),
            text);
}

TEST(Plan, AskedAgainIsTheSameObject) {
  const Layout from = on_2x2x2({shard(0), shard(0), replicate()});
  const Layout to = on_2x2x2({shard(1), replicate(), shard(0)});
  const PlanOptions options{.topology = Topology{}};
  const auto first = plan(from, to, options);
  EXPECT_EQ(plan(from, to, options).get(), first.get());
  EXPECT_EQ(plan(on_2x2x2({shard(0), shard(0), replicate()}), to, options).get(), first.get());
  clear_plans();
  EXPECT_EQ(plan(from, to, options)->text(), first->text());
}

TEST(Plan, IsKeptApartByTopologyMaxBytesAndRules) {
  const Layout from = on_2x2x2({shard(0), shard(0), replicate()});
  const Layout to = on_2x2x2({shard(1), replicate(), shard(0)});
  const auto first = plan(from, to, {.topology = Topology{}});
  EXPECT_NE(plan(from, to, {.topology = Topology{.ranks_per_host = 2}}).get(), first.get());
  EXPECT_NE(plan(from, to, {.topology = Topology{}, .max_bytes = 1 << 20}).get(), first.get());
  EXPECT_NE(plan(from, to, {.topology = Topology{}, .rules = Rules::torch_2_13}).get(), first.get());
  EXPECT_EQ(plan(from, to, {.topology = Topology{}}).get(), first.get());
}

TEST(Plan, MayBeAskedForByManyThreadsAtOnce) {
  clear_plans();
  const std::vector<Layout> layouts = every_placement({12, 10}, Mesh({2, 3}), false);
  std::vector<std::vector<double>> costs(4);
  std::vector<std::thread> threads;
  for (auto& mine : costs) {
    threads.emplace_back([&layouts, &mine] {
      for (const Layout& from : layouts) {
        for (const Layout& to : layouts)
          mine.push_back(redistribute_cost(from, to, {.topology = Topology{}}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : costs) EXPECT_EQ(mine, costs[0]);
}

TEST(Plan, WhatItLostToIsNotCheaperAndSaysWhy) {
  Dice dice;
  int64_t alternatives = 0;
  for (int64_t i = 0; i < tries(1000); ++i) {
    const Mesh mesh = any_mesh(dice);
    const std::vector<int64_t> shape = any_tensor_shape(dice);
    const LayoutPair pair = any_pair_on(dice, shape, mesh);
    const auto made = plan(pair.from, pair.to, {.topology = any_topology(dice, 20)});
    double before = 0;
    for (const Alternative& lost : made->alternatives) {
      ++alternatives;
      EXPECT_GE(lost.cost_us, made->cost_us - 1e-9) << text_of(pair) << ": " << lost.text;
      EXPECT_GE(lost.cost_us, before);
      EXPECT_FALSE(lost.reason.empty() || lost.name.empty() || lost.text.empty());
      before = lost.cost_us;
    }
  }
  EXPECT_GT(alternatives, tries(1000) / 4);  // or the test says little
}

TEST(Plan, NamesTheDirectExchangeAndDTensorsOrderAmongWhatLost) {
  const Layout from({256, 256, 16}, DType::f32, Mesh({2, 2, 2}), {shard(0), shard(1), shard(0)});
  const auto made =
      plan(from, from.with({shard(1), shard(0), replicate()}), {.topology = Topology{.ranks_per_host = 2}});
  const auto has = [&](const std::string& name) {
    return std::any_of(made->alternatives.begin(), made->alternatives.end(),
                       [&](const Alternative& lost) { return lost.name == name; });
  };
  EXPECT_TRUE(has("DTensor's order"));
  EXPECT_TRUE(has("direct exchange") || made->steps.size() == 1) << made->text();
}

TEST(Plan, WrittenAsJsonAndReadIsTheSame) {
  Dice dice;
  for (int64_t i = 0; i < tries(500); ++i) {
    const LayoutPair pair = any_pair(dice);
    const auto made = plan(pair.from, pair.to, {.topology = any_topology(dice, 40)});
    const std::string json = to_json(*made);
    const Plan read = plan_from_json(json);
    EXPECT_EQ(to_json(read), json);
    EXPECT_EQ(read.from, pair.from);
    EXPECT_EQ(read.to, pair.to);
    EXPECT_EQ(read.cost_us, made->cost_us);
    EXPECT_EQ(read.text(), made->text());
    EXPECT_EQ(explain(read), explain(*made));
  }
}

TEST(PlanRefuses, JsonThatIsNoPlan) {
  const std::string json =
      to_json(*plan(on_2x2x2({shard(0), replicate(), replicate()}),
                    on_2x2x2({shard(1), replicate(), replicate()}), {.topology = Topology{}}));
  for (size_t length = 0; length + 1 < json.size(); length += 7)
    EXPECT_NE(refusal_of([&] { plan_from_json(json.substr(0, length)); }), "") << length;
  for (const char* text : {"", "[]", "null", "{}", "{\"version\": 7}"})
    EXPECT_NE(refusal_of([&] { plan_from_json(text); }), "") << text;
}

TEST(PlanJson, OfAStepOverADimThatItsMeshHasNotIsRefused) {
  const Layout rows({8, 6}, DType::f32, Mesh({2}), {shard(0)});
  std::string text = to_json(*plan(rows, rows.with({replicate()})));
  const std::string dims = "\"mesh_dims\": [\n    0";
  ASSERT_NE(text.find(dims), std::string::npos) << text;
  text.replace(text.find(dims) + dims.size() - 1, 1, "1");
  EXPECT_NE(refusal_of([&] { plan_from_json(text); }).find("has 1, which is not a dim of a mesh of 1"),
            std::string::npos);
}

TEST(PlanRefuses, WhatCannotBe) {
  const Layout from = on_2x2x2({shard(0), replicate(), replicate()});
  EXPECT_TRUE(refuses_with(
      [&] {
        plan(from, on_2x2x2({partial(), replicate(), replicate()}));
      },
      "plan", "addends"));
  EXPECT_TRUE(refuses_with(
      [&] {
        plan(from, on_2x2x2({shard(0), replicate(), replicate()}, {64, 65}));
      },
      "64x65"));
  EXPECT_TRUE(refuses_with([&] { plan(from, from, {.topology = Topology{.base_us = -1}}); }, "base_us"));
  EXPECT_TRUE(refuses_with([&] { plan(from, from, {.topology = Topology{}, .rules = Rules::seed_004}); },
                           "seed_004"));
  EXPECT_TRUE(refuses_with(
      [&] {
        redistribute_cost(from, on_2x2x2({shard(0), replicate(), replicate()}, {64, 65}),
                          {.topology = Topology{}});
      },
      "64x65"));
}

TEST(PlanRefuses, ARankWithoutAHost) {
  const Layout from = on_2x2x2({shard(0), replicate(), replicate()});
  EXPECT_TRUE(refuses_with(
      [&] {
        plan(from, on_2x2x2({replicate(), replicate(), replicate()}),
             {.topology = Topology{.host_of_rank = {0, 1}}});
      },
      "of_rank", "rank 2"));
}

TEST(PlanRefuses, AMeshOfTooManyDims) {
  const std::vector<int64_t> ones(13, 1);
  const Layout from({4}, DType::f32, Mesh(ones), std::vector<Placement>(13));
  std::vector<Placement> placements(13);
  placements[3] = shard(0);
  EXPECT_TRUE(refuses_with([&] { plan(from, from.with(placements), {.topology = Topology{}}); }, "13", "12",
                           "flatten"));
}

}  // namespace
}  // namespace shardway::testing
