// What a rank declares on a link, byte for byte as tests/python/test_link_wire.py has it, and rosters.
#include "link/moves/declaration.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "link/model/layouts.h"
#include "link/moves/overlap.h"
#include "link/moves/roster.h"
#include "link/talk/wire.h"
#include "ops/call/arguments.h"
#include "ops/call/dtypes.h"

namespace shardway::testing {
namespace {

using link::Declaration;
using link::Roster;

TEST(LinkDeclaration, HasTheBytesOfPython) {
  const Layout uneven({4, 6}, DType::f32, Mesh({2, 2}, {"dp", "tp"}), {shard(0, {1, 3}), shard(0)});
  const Layout summed({3}, DType::f16, Mesh({4}), {partial()});
  const Declaration declared = Declaration::of({{"uneven", at::zeros({1, 6}), uneven},
                                                {"summed", at::zeros({3}, at::kHalf), summed},
                                                {"whole", at::zeros({}, at::kLong)}},
                                               0, 4);
  const std::string body =
      R"({"do":"publish","tensors":{)"
      R"("uneven":{"shape":[4,6],"dtype":"float32","mesh_shape":[2,2],"mesh":[0,1,2,3],)"
      R"("placements":[["S",0,[1,3]],["S",0,null]],"order":[[0,1],[]]},)"
      R"("summed":{"shape":[3],"dtype":"float16","mesh_shape":[4],"mesh":[0,1,2,3],"placements":[["P","sum"]],)"
      R"("order":[[]]},)"
      R"("whole":{"shape":[],"dtype":"int64"}},"problems":[],"cast":false,"version":0})";
  EXPECT_EQ(link::packed(declared.said("publish", false)).substr(4), body);
  EXPECT_EQ(link::layout_of(declared.entries.at("uneven"), 0, DType::f32), uneven);
  EXPECT_EQ(link::layout_of(declared.entries.at("summed"), 10, DType::f16).mesh().ranks(),
            (std::vector<int64_t>{10, 11, 12, 13}));
}

TEST(LinkDeclaration, NamesDTypesAsTorchDoes) {
  for (const DType dtype :
       {DType::boolean, DType::u8,          DType::u16,     DType::u32,  DType::u64,
        DType::i8,      DType::i16,         DType::i32,     DType::i64,  DType::f8_e4m3fn,
        DType::f16,     DType::f8_e4m3fnuz, DType::f8_e5m2, DType::bf16, DType::f8_e5m2fnuz,
        DType::f32,     DType::f8_e8m0fnu,  DType::f64,     DType::c32,  DType::c64,
        DType::c128}) {
    EXPECT_EQ(link::torch_name(dtype), dtype_name(scalar_type_of(dtype)));
    EXPECT_EQ(link::dtype_named(link::torch_name(dtype)), dtype);
  }
  EXPECT_EQ(link::dtype_if_named("float3"), std::nullopt);
}

TEST(LinkDeclaration, SaysWhatIsWrongWithEachTensor) {
  const Layout rows({4, 6}, DType::f32, Mesh({2}), {shard(0)});
  const at::Tensor whole = at::zeros({4, 6});
  const Declaration declared =
      Declaration::of({{"a", at::Tensor()},
                       {"b", at::Tensor(), rows},
                       {"c", whole, rows},
                       {"d", at::zeros({2, 6}, at::kDouble), rows},
                       {"e", whole, Layout({4, 6}, DType::f32, Mesh({3}), {shard(0)})},
                       {"f", whole},
                       {"f", whole},
                       {"g", whole.to_sparse()}},
                      0, 2);
  EXPECT_EQ(declared.problems, (std::vector<std::string>{
                                   "a: it is undefined", "b: it has no local part",
                                   "c: its part has shape [4, 6], but the layout says [2, 6]",
                                   "d: its part is float64, but the layout says float32",
                                   "e: its mesh has rank 2, but the role has 2 ranks", "f: it is named twice",
                                   "g: it is on cpu, Sparse: a link moves dense tensors of the CPU"}));
  EXPECT_EQ(declared.refused, (std::vector<std::string>{"a", "b", "c", "d", "e", "f", "g"}));
  EXPECT_TRUE(declared.entries.contains("f"));
}

TEST(LinkDeclaration, DestinationsMayInterleaveButNotOverlap) {
  const at::Tensor fused = at::zeros({6, 4});
  const auto lines = [](const std::vector<NamedTensor>& tensors) {
    return link::overlaps(*Declaration::of(tensors, 0, 1).parts);
  };
  EXPECT_TRUE(
      lines({{"q", fused.slice(0, 0, 2)}, {"k", fused.slice(0, 2, 4)}, {"v", fused.slice(0, 4, 6)}}).empty());
  EXPECT_TRUE(lines({{"even", fused.slice(1, 0, 4, 2)}, {"odd", fused.slice(1, 1, 4, 2).t()}}).empty());
  EXPECT_EQ(lines({{"a", fused.slice(0, 0, 3)}, {"b", fused.slice(0, 2, 4)}}),
            (std::vector<std::string>{"b: the destination overlaps that of a"}));
  EXPECT_EQ(lines({{"a", at::zeros({1}).expand({3})}}),
            (std::vector<std::string>{"a: elements of the destination overlap one another"}));
}

Json whole_entry(const std::vector<int64_t>& ranks) {
  return {{"shape", {2, 3}},
          {"dtype", "bfloat16"},
          {"mesh_shape", {ranks.size()}},
          {"mesh", ranks},
          {"placements", Json::array({Json::array({"R"})})},
          {"order", Json::array({Json::array(), Json::array()})}};
}

Json roster_of_two_jobs() {
  return {{"store", {{"meeting", "here"}}},
          {"source", "trainer"},
          {"roles", Json::array({Json::array({"trainer", 2}), Json::array({"engine", 1})})},
          {"models", {{"trainer", {{"w", whole_entry({0, 1})}}}, {"engine", {{"w", whole_entry({0})}}}}}};
}

TEST(LinkRoster, NumbersTheRanksRoleByRole) {
  const Roster roster = Roster::read(roster_of_two_jobs());
  EXPECT_EQ(roster.ranks, 3);
  EXPECT_EQ(roster.rank_of({.role = "engine", .rank = 0, .size = 1, .process = "", .job = ""}), 2);
  ASSERT_EQ(roster.moves.size(), 1);
  EXPECT_EQ(roster.moves[0].before.mesh().ranks(), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(roster.moves[0].after.mesh().ranks(), (std::vector<int64_t>{2}));
  EXPECT_EQ(roster.moves[0].after.dtype(), DType::bf16);
}

// 12 bytes a piece; those that come together have the least of their buffers.
TEST(LinkRoster, WhatFunctionsTakeComesInPortionsThatFit) {
  Json said = roster_of_two_jobs();
  for (const char* name : {"a", "b", "c", "d"}) {
    said["models"]["trainer"][name] = whole_entry({0, 1});
    said["models"]["engine"][name] = whole_entry({0});
    said["models"]["engine"][name]["max_bytes"] = name[0] == 'd' ? 12 : 30;
  }
  std::string portions;
  for (const auto& move : Roster::read(said).moves) portions += move.name + std::to_string(move.portion);
  EXPECT_EQ(portions, "w0a1b1c2d3");
}

// Columns of f32 on two ranks, of which rank 0 has the larger parts: a 5x4, b 7x3, c 6x3, of 80, 84, 72
// bytes.
TEST(LinkRoster, APortionFitsOnEveryRankIntoTheLeastLimit) {
  const std::map<std::string, std::vector<int64_t>> shapes = {{"a", {5, 8}}, {"b", {7, 6}}, {"c", {6, 5}}};
  const auto portions = [&](const std::vector<int64_t>& limits) {
    Json said = roster_of_two_jobs();
    said["roles"][1][1] = 2;
    for (auto& model : said["models"]) model = Json::object();
    for (const auto& [name, shape] : shapes) {
      const Json entry = link::entry_of(Layout(shape, DType::f32, Mesh({2}), {shard(1)}));
      said["models"]["trainer"][name] = entry;
      said["models"]["engine"][name] = entry;
      const int64_t limit = limits[static_cast<size_t>(name[0] - 'a')];
      if (limit > 0) said["models"]["engine"][name]["max_bytes"] = limit;
    }
    std::vector<int64_t> found;
    for (const auto& move : Roster::read(said).moves) found.push_back(move.portion);
    return found;
  };
  EXPECT_EQ(portions({236, 236, 236}), (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(portions({236, 236, 235}), (std::vector<int64_t>{1, 1, 2}));
  EXPECT_EQ(portions({164, 164, 164}), (std::vector<int64_t>{1, 1, 2}));
  EXPECT_EQ(portions({163, 163, 163}), (std::vector<int64_t>{1, 2, 2}));
  EXPECT_EQ(portions({84, 84, 84}), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(portions({236, 0, 236}), (std::vector<int64_t>{1, 0, 1}));
}

TEST(LinkRoster, AForgedOneIsRefused) {
  const auto read_with = [](const std::function<void(Json&)>& change) {
    Json said = roster_of_two_jobs();
    change(said);
    Roster::read(said);
  };
  EXPECT_NO_THROW(read_with([](Json&) {}));
  EXPECT_THROW(read_with([](Json& said) { said = nullptr; }), link::NotOurs);
  EXPECT_THROW(read_with([](Json& said) { said.erase("models"); }), link::NotOurs);
  EXPECT_THROW(read_with([](Json& said) { said["roles"] = Json::array(); }), link::NotOurs);
  EXPECT_THROW(read_with([](Json& said) { said["roles"][1][1] = int64_t{1} << 62; }), link::NotOurs);
  EXPECT_THROW(read_with([](Json& said) { said["roles"][0][1] = -2; }), link::NotOurs);
  EXPECT_THROW(read_with([](Json& said) { said["source"] = "engine"; }), link::NotOurs);
  EXPECT_THROW(read_with([](Json& said) { said["models"]["engine"]["x"] = whole_entry({0}); }),
               link::NotOurs);
  EXPECT_THROW(read_with([](Json& said) { said["models"]["engine"]["w"]["mesh"] = {0, 0}; }), link::NotOurs);
  EXPECT_THROW(read_with([](Json& said) { said["models"]["engine"]["w"]["placements"][0][0] = 7; }),
               link::NotOurs);
  EXPECT_THROW(read_with([](Json& said) { said["models"]["trainer"]["w"]["dtype"] = "float33"; }),
               link::NotOurs);
  EXPECT_THROW(read_with([](Json& said) {
                 said["models"]["trainer"]["w"]["shape"] = {-1, 3};
               }),
               link::NotOurs);
}

}  // namespace
}  // namespace shardway::testing
