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

TEST(ReadPlacements, UnderstandsTorchsWords) {
  const std::string ours = "S0,R,P,P(max),S1";
  const std::vector<Placement> expected = read_placements(ours, 2).placements;
  for (const std::string text :
       {"Shard(0), Replicate(), Partial(), Partial(max), Shard(dim=1)", "[S(0), R, P(sum), P(max), S(1)]",
        "shard(0),replicate,partial,partial(max),s1"}) {
    EXPECT_EQ(read_placements(text, 2).placements, expected) << text;
  }
  EXPECT_EQ(read_placements("P(mean)", 1).placements, read_placements("P(avg)", 1).placements);
  EXPECT_EQ(read_placements("Shard(0)[3,5]", 1).placements, read_placements("S0[3,5]", 1).placements);
}

TEST(ReadDType, UnderstandsOurNamesAndTorchs) {
  EXPECT_EQ(read_dtype("bf16"), DType::bf16);
  EXPECT_EQ(read_dtype("bfloat16"), DType::bf16);
  EXPECT_EQ(read_dtype("torch.bfloat16"), DType::bf16);
  EXPECT_EQ(read_dtype("float"), DType::f32);
  EXPECT_EQ(read_dtype("half"), DType::f16);
  EXPECT_EQ(read_dtype("float8_e5m2"), DType::f8_e5m2);
  EXPECT_EQ(read_dtype("uint16"), DType::u16);
  EXPECT_EQ(read_dtype("long"), DType::i64);
  EXPECT_EQ(read_dtype("complex128"), DType::c128);
  EXPECT_EQ(read_dtype("bool"), DType::boolean);
}

TEST(DidYouMean, NamesTheNearestWordOrNone) {
  const auto hint_of = [](const std::string& text) { return refusal_of([&] { read_placements(text, 2); }); };
  EXPECT_NE(hint_of("replicat").find("did you mean Replicate?"), std::string::npos);
  EXPECT_NE(hint_of("Sahrd(0)").find("did you mean Shard?"), std::string::npos);
  EXPECT_EQ(hint_of("columns").find("did you mean"), std::string::npos);
  EXPECT_NE(refusal_of([] { read_dtype("flaot32"); }).find("did you mean float32?"), std::string::npos);
  EXPECT_NE(refusal_of([] { read_dtype("bfloat"); }).find("did you mean bfloat16?"), std::string::npos);
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
                  {"Shard(0", 8},
                  {"Shard(rows)", 7},
                  {"Replicate(0)", 11},
                  {"[S0,R", 6},
                  {"Replicat,R", 1}},
                 [](const std::string& text) { read_placements(text, 2); });
  expect_columns({{"", 1}, {"GiB", 1}, {"2Gi", 2}, {"-1", 1}, {"nan", 1}, {"1e3", 2}, {"99999999PiB", 1}},
                 [](const std::string& text) { read_bytes(text); });
  expect_columns({{"", 1}, {"0", 2}, {"0=", 3}, {"0=1", 4}, {"0=8:4", 5}, {"0=0:4", 1}, {"0=1:4x", 6}},
                 [](const std::string& text) { read_sweep(text); });
}

}  // namespace
}  // namespace shardway::testing
