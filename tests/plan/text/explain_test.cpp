#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "arbitrary_layouts.h"
#include "effort.h"
#include "plan/geometry/cost_text.h"
#include "shardway/plan.h"

namespace shardway::testing {
namespace {

int64_t characters_in(const std::string& line) {
  return std::count_if(line.begin(), line.end(),
                       [](char letter) { return (static_cast<unsigned char>(letter) & 0xC0U) != 0x80U; });
}

TEST(Explain, LinesFitTheColumnsAndTheFiguresStay) {
  Dice dice;
  for (int64_t i = 0; i < tries(300); ++i) {
    const LayoutPair pair = any_pair(dice);
    SCOPED_TRACE(text_of(pair));
    const auto best = plan(pair.from, pair.to, {.topology = Topology{}});
    const int64_t columns = dice.between(int64_t{80}, int64_t{140});
    const std::string text = explain(*best, columns);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const bool can_break = line.find(' ', 4) != std::string::npos;
      EXPECT_TRUE(characters_in(line) <= columns || !can_break) << line;
    }
    for (const Step& step : best->steps) EXPECT_NE(text.find(name_of(step.kind)), std::string::npos);
  }
}

TEST(Explain, InTwoLevelsSaysWhatCrossesBetweenHosts) {
  const Layout rows({1 << 20}, DType::f32, Mesh({8}), {shard(0)});
  const auto best =
      plan(rows, rows.with({replicate()}), {.topology = Topology{.ranks_per_host = 4, .two_levels = true}});
  for (const int64_t columns : {80, 100}) {
    const std::string text = explain(*best, columns);
    EXPECT_NE(text.find("in two levels: through memory inside a host; 4.0 MiB in all cross between hosts"),
              std::string::npos)
        << text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(characters_in(line), columns);
  }
  const Plan again = plan_from_json(to_json(*best));
  EXPECT_TRUE(again.in_two_levels);
  EXPECT_EQ(again.crossing_bytes, 4 << 20);
  EXPECT_EQ(again.steps.front().crossing_bytes, 4 << 20);
  EXPECT_EQ(explain(again), explain(*best));
}

std::string explained_by(const Topology& topology) {
  const Layout rows({4096, 4096}, DType::f32, Mesh({4}), {shard(0)});
  return explain(*plan(rows, rows.with({replicate()}), {.topology = topology}));
}

TEST(Explain, CallsCostsByAssumedFiguresEstimatesAndRoundsThem) {
  const std::string assumed = explained_by(Topology{});
  EXPECT_NE(assumed.find("1 step, est. 540 us;"), std::string::npos) << assumed;  // 542.89
  EXPECT_NE(assumed.find("costs are estimates"), std::string::npos) << assumed;
  EXPECT_EQ(assumed.find("542.8"), std::string::npos) << assumed;
}

TEST(Explain, GivesMeasuredCostsAsTheyAre) {
  const std::string measured = explained_by(Topology{.base_us = 7.6, .source = "measured"});
  EXPECT_NE(measured.find("1 step, 543.89 us;"), std::string::npos) << measured;
  EXPECT_EQ(measured.find("est."), std::string::npos) << measured;
}

TEST(CostText, HasTwoDigitsOfAnEstimate) {
  const std::vector<std::pair<double, const char*>> known = {
      {0, "0"},     {371.93, "370"}, {95.9, "96"},      {99.6, "100"},        {8.4, "8.4"},
      {9.96, "10"}, {0.6, "0.60"},   {0.0625, "0.062"}, {1234567, "1200000"}, {-47.3, "-47"}};
  for (const auto& [us, text] : known) EXPECT_EQ(two_digits(us), text);
  EXPECT_EQ(cost_in_us(371.927, true), "est. 370 us");
  EXPECT_EQ(cost_in_us(371.927, false), "371.93 us");
}

}  // namespace
}  // namespace shardway::testing
