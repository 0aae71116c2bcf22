// What ranks declare, put together and compared.
#include "link/hub/declared_model.h"

#include <gtest/gtest.h>

#include "link/model/layouts.h"

namespace shardway::testing {
namespace {

using link::differences;
using link::put_together;
using link::PutTogether;

Json plain(const Json& shape, const std::string& dtype = "float32") {
  return {{"shape", shape}, {"dtype", dtype}};
}

Json placed(const Layout& layout) { return link::entry_of(layout); }

Json said(const Json& tensors) {
  return {{"tensors", tensors}, {"problems", Json::array()}, {"cast", false}, {"version", 0}};
}

PutTogether of_ranks(const std::string& role, const std::vector<Json>& messages) {
  std::map<int64_t, const Json*> by_rank;
  for (size_t rank = 0; rank < messages.size(); ++rank) by_rank[static_cast<int64_t>(rank)] = &messages[rank];
  return put_together(role, static_cast<int64_t>(messages.size()), by_rank);
}

// Differences between two roles of one rank each.
std::vector<std::string> between(const Json& published, const Json& subscribed) {
  return differences(of_ranks("trainer", {published}).model, of_ranks("engine", {subscribed}).model);
}

TEST(DeclaredModel, IsTheUnionOfWhatRanksNamedInOrder) {
  const auto [model, problems] =
      of_ranks("trainer", {said({{"b", plain({2, 3})}, {"a", plain(Json::array())}}),
                           said({{"c", plain({1})}, {"b", plain({2, 3})}})});
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(model.names, (std::vector<std::string>{"b", "a", "c"}));
  EXPECT_EQ(model.text_of("b"), "float32[2,3] whole on role trainer ranks 0-1");
  EXPECT_EQ(model.said().at("b").at("mesh"), Json::parse("[0, 1]"));
  EXPECT_EQ(model.said().at("c").at("mesh"), Json::parse("[1]"));
  EXPECT_EQ(model.said().at("b").at("order"), Json::parse("[[], []]"));
}

TEST(DeclaredModel, RanksThatDifferAreNamed) {
  const Json rows = placed(Layout({4}, DType::f32, Mesh({3}), {shard(0)}));
  const auto differing = of_ranks("trainer", {said({{"w", plain({2})}}), said({{"w", plain({3})}})});
  EXPECT_EQ(
      differing.problems,
      std::vector<std::string>{"w: float32[2] whole on role trainer rank 0, float32[3] whole on rank 1"});
  const auto beyond = of_ranks("trainer", {said({{"w", rows}}), said(Json::object())});
  EXPECT_EQ(beyond.problems,
            (std::vector<std::string>{"w: its mesh has role trainer rank 2, but the role has 2 ranks",
                                      "w: role trainer rank 1 of its mesh did not name it"}));
}

TEST(DeclaredModel, EveryDifferenceIsTold) {
  const Json published =
      said({{"only", plain({1})}, {"shape", plain({2, 3})}, {"dtype", plain({4})}, {"same", plain({5})}});
  const Json subscribed = said({{"same", plain({5})},
                                {"shape", plain({3, 2})},
                                {"dtype", plain({4}, "bfloat16")},
                                {"wanted", plain({6})},
                                {"summed", placed(Layout({2}, DType::f32, Mesh({1}), {partial()}))}});
  const Json with_sum = [&] {
    Json more = published;
    more["tensors"]["summed"] = plain({2});
    return more;
  }();
  const std::string there = " whole on role trainer rank 0";
  const std::string here = " whole on role engine rank 0";
  const std::vector<std::string> expected = {
      "dtype: the dtypes differ, and cast=True is not given: published float32[4]" + there +
          ", subscribed bfloat16[4]" + here,
      "only: float32[1]" + there + ", but role engine does not subscribe to it",
      "shape: the shapes differ: published float32[2,3]" + there + ", subscribed float32[3,2]" + here,
      "summed: a destination cannot be Partial: published float32[2]" + there +
          ", subscribed float32[2] as P(sum) over 1 ranks on role engine rank 0",
      "wanted: float32[6]" + here + ", but role trainer does not publish it"};
  EXPECT_EQ(between(with_sum, subscribed), expected);
}

TEST(DeclaredModel, CastsGoFromBoolToIntegersToFloatsToComplexNumbers) {
  const std::vector<std::vector<std::string>> kinds = {
      {"bool"}, {"uint8", "int64"}, {"float8_e5m2", "bfloat16", "float64"}, {"complex64"}};
  for (size_t before = 0; before < kinds.size(); ++before) {
    for (size_t after = 0; after < kinds.size(); ++after) {
      for (const std::string& from : kinds[before]) {
        for (const std::string& to : kinds[after]) {
          Json subscribed = said({{"w", plain({1}, to)}});
          subscribed["cast"] = true;
          EXPECT_EQ(between(said({{"w", plain({1}, from)}}), subscribed).empty(), before <= after)
              << from << to;
        }
      }
    }
  }
}

TEST(DeclaredModel, APieceHasToFitIntoTheBufferOfItsLoad) {
  Json load = placed(Layout({8}, DType::f32, Mesh({1}), {replicate()}));
  load["max_bytes"] = 31;
  const auto found = between(said({{"w", plain({8})}}), said({{"w", load}}));
  ASSERT_EQ(found.size(), 1);
  EXPECT_NE(found[0].find("the piece of rank 0 takes 32 bytes, more than max_bytes=31 of its Load"),
            std::string::npos);
  EXPECT_NE(found[0].find("float32[8] to a Load of 31 bytes whole"), std::string::npos);
}

TEST(DeclaredModel, ManyDifferencesAreCounted) {
  const std::string text = link::told("what role a sends", std::vector<std::string>(203, "x"));
  EXPECT_TRUE(text.starts_with("what role a sends: 203 differences\n  x\n"));
  EXPECT_TRUE(text.ends_with("\n  and 3 more"));
  EXPECT_EQ(link::ranks_text("a", {5, 0, 2, 1}), "role a ranks 0-2,5");
}

}  // namespace
}  // namespace shardway::testing
