#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "arbitrary_layouts.h"
#include "effort.h"
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

}  // namespace
}  // namespace shardway::testing
