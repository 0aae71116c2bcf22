#include "cli/notation.h"

#include <gtest/gtest.h>

#include "refusal.h"

namespace shardway::testing {
namespace {

using namespace cli;  // NOLINT: the room under test

TEST(ReadMesh, TakesNamesOrNumbersAndRanksOfItsOwn) {
  const Mesh named = read_mesh("dp=2,tp=4");
  EXPECT_EQ(named.shape(), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(named.names(), (std::vector<std::string>{"dp", "tp"}));
  EXPECT_EQ(read_mesh("2x4").shape(), named.shape());
  EXPECT_EQ(read_mesh("4@8-10,3").ranks(), (std::vector<int64_t>{8, 9, 10, 3}));
  EXPECT_EQ(read_mesh("dp=2@5,4").ranks(), (std::vector<int64_t>{5, 4}));
}

TEST(ReadPlacements, ReadsWhatPlacementsTextWrites) {
  const Layout whole({6, 8}, DType::f32, Mesh({1}), {replicate()});
  for (const std::string text :
       {"S0,R", "S1,P", "S0.1,S0.0", "S0[1,5],S0", "P(max),P(max)", "S1,S1", "R,S0[0,6]", "P(avg),S1"}) {
    const OrderedPlacements read = read_placements(text, 2);
    EXPECT_EQ(placements_text(whole.with(Mesh({2, 2}), read.placements, read.order)), text);
  }
}

TEST(ReadPlacements, AnOrderNamesWhichMeshDimSplitsFirst) {
  EXPECT_EQ(read_placements("S0.1,S1,S0.0", 2).order, (ShardOrder{{2, 0}, {1}}));
  EXPECT_TRUE(read_placements("S0,S0", 2).order.empty());
}

TEST(ReadBytes, KnowsBinaryAndDecimalUnits) {
  EXPECT_EQ(read_bytes("17"), 17);
  EXPECT_EQ(read_bytes("2GiB"), int64_t{2} << 30);
  EXPECT_EQ(read_bytes("1.5KiB"), 1536);
  EXPECT_EQ(read_bytes("10MB"), 10'000'000);
}

TEST(ReadHosts, GivesTheHostOfEachRank) {
  EXPECT_EQ(read_hosts("2x3"), (std::vector<int64_t>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(read_hosts("3,1,2"), (std::vector<int64_t>{0, 0, 0, 1, 2, 2}));
  EXPECT_EQ(read_hosts("2"), (std::vector<int64_t>{0, 0}));
}

TEST(ReadSweep, HasADimAndTwoLengths) {
  const Sweep sweep = read_sweep("1=16:4096");
  EXPECT_EQ(sweep.dim, 1);
  EXPECT_EQ(sweep.first, 16);
  EXPECT_EQ(sweep.last, 4096);
}

struct Wrong {
  std::string text;
  size_t column;
};

template <class Read>
void expect_columns(const std::vector<Wrong>& cases, Read read) {
  for (const Wrong& wrong : cases) {
    const std::string refusal = refusal_of([&] { read(wrong.text); });
    EXPECT_TRUE(refusal.starts_with("column " + std::to_string(wrong.column) + ": "))
        << "'" << wrong.text << "' gives: " << refusal;
  }
}

TEST(Notation, NamesTheColumnThatIsWrong) {
  expect_columns({{"", 1},
                  {"dp", 3},
                  {"dp=", 4},
                  {"dp=2,", 6},
                  {"2y4", 2},
                  {"2x", 3},
                  {"4@", 3},
                  {"4@3-1", 3},
                  {"dp=99999999999999999999", 4},
                  {"-2", 1}},
                 [](const std::string& text) { read_mesh(text); });
  expect_columns({{"", 1}, {"4096,4096", 5}, {"4096x", 6}, {"x8", 1}, {"8x-1", 3}},
                 [](const std::string& text) { read_shape(text); });
  expect_columns({{"", 1},
                  {"S", 2},
                  {"S0,X", 4},
                  {"S0[1,2", 7},
                  {"S0[]", 4},
                  {"P(mean", 7},
                  {"P(all)", 3},
                  {"S0,", 4},
                  {"S0 ,R", 3},
                  {"S2", 1},
                  {"S0.1,S0.1", 6},
                  {"S0.0,S0", 6},
                  {"s0", 1}},
                 [](const std::string& text) { read_placements(text, 2); });
  expect_columns({{"", 1}, {"GiB", 1}, {"2Gi", 2}, {"-1", 1}, {"nan", 1}, {"1e3", 2}, {"99999999PiB", 1}},
                 [](const std::string& text) { read_bytes(text); });
  expect_columns({{"", 1}, {"0", 2}, {"0=", 3}, {"0=1", 4}, {"0=8:4", 5}, {"0=0:4", 1}, {"0=1:4x", 6}},
                 [](const std::string& text) { read_sweep(text); });
}

}  // namespace
}  // namespace shardway::testing
