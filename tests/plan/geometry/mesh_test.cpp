#include <gtest/gtest.h>

#include "layout_reference.h"
#include "refusal.h"
#include "shardway/layout.h"

namespace shardway::testing {
namespace {

using Numbers = std::vector<int64_t>;

TEST(Mesh, HoldsTheFirstRanksRowMajorUnlessOthersAreGiven) {
  const Mesh mesh({2, 3});
  EXPECT_EQ(mesh.ranks(), (Numbers{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.size(1), 3);
  EXPECT_EQ(mesh.ndim(), 2);
  EXPECT_EQ(mesh.coordinate_at(4), (Numbers{1, 1}));
  EXPECT_EQ(mesh.position_of(5), 5);
  EXPECT_EQ(mesh.position_of(6), std::nullopt);
  EXPECT_EQ(mesh.position_of(-1), std::nullopt);
}

TEST(Mesh, FindsAnyRankWhereItStands) {
  const Mesh mesh({2, 2}, {7, 3, 0, 9}, {});
  EXPECT_EQ(mesh.position_of(7), 0);
  EXPECT_EQ(mesh.position_of(3), 1);
  EXPECT_EQ(mesh.position_of(0), 2);
  EXPECT_EQ(mesh.position_of(9), 3);
  for (const int64_t outside : {-5, 1, 2, 8, 10, 1'000'000'000})
    EXPECT_EQ(mesh.position_of(outside), std::nullopt);
}

TEST(Mesh, CoordinatesCountTheLastDimFastest) {
  const Mesh mesh({3, 1, 4, 2});
  for (int64_t position = 0; position < mesh.size(); ++position)
    EXPECT_EQ(mesh.coordinate_at(position), coordinate_of(mesh, position));
}

TEST(Mesh, WithoutDimsHoldsOneRank) {
  const Mesh mesh((Numbers()));
  EXPECT_EQ(mesh.size(), 1);
  EXPECT_EQ(mesh.ranks(), (Numbers{0}));
}

// 0 1 2 3
// 4 5 6 7   and the next plane 8 … 15
TEST(Mesh, ASubmeshHoldsTheRanksThatDifferInItsDimsAlone) {
  const Mesh mesh({2, 2, 4}, {"pp", "dp", "tp"});
  EXPECT_EQ(mesh.submesh({2}, 5), Mesh({4}, {4, 5, 6, 7}, {}));
  EXPECT_EQ(mesh.submesh({0}, 5), Mesh({2}, {5, 13}, {}));
  EXPECT_EQ(mesh.submesh({0, 1}, 5), Mesh({2, 2}, {1, 5, 9, 13}, {}));
  EXPECT_EQ(mesh.submesh({1, 0}, 5), Mesh({2, 2}, {1, 9, 5, 13}, {}));
  EXPECT_EQ(mesh.submesh({1, 0}, 5).names(), (std::vector<std::string>{"dp", "pp"}));
  EXPECT_EQ(mesh.submesh({0, 1, 2}, 5), mesh);
}

TEST(Mesh, ASubmeshOfGivenRanksHoldsThose) {
  const Mesh mesh({2, 2}, {7, 3, 0, 9}, {});
  EXPECT_EQ(mesh.submesh({0}, 3), Mesh({2}, {3, 9}, {}));
  EXPECT_EQ(mesh.submesh({1}, 0), Mesh({2}, {0, 9}, {}));
}

TEST(Mesh, NeighbouringDimsFlattenToOneWithTheSameRanks) {
  const Mesh mesh({2, 3, 4}, {"pp", "dp", "tp"});
  const Mesh inner = mesh.flattened(1, 2);
  EXPECT_EQ(inner.shape(), (Numbers{2, 12}));
  EXPECT_EQ(inner.names(), (std::vector<std::string>{"pp", "dp_tp"}));
  EXPECT_EQ(inner.ranks(), mesh.ranks());
  EXPECT_EQ(mesh.flattened(0, 1).shape(), (Numbers{6, 4}));
  EXPECT_EQ(mesh.flattened(0, 2).names(), (std::vector<std::string>{"pp_dp_tp"}));
  EXPECT_EQ(mesh.flattened(1, 1), mesh);
  EXPECT_TRUE(Mesh({2, 2}).flattened(0, 1).names().empty());
}

TEST(Mesh, DimsAreFoundByName) {
  const Mesh mesh({2, 4}, {"dp", "tp"});
  EXPECT_EQ(mesh.dim_named("dp"), 0);
  EXPECT_EQ(mesh.dim_named("tp"), 1);
  EXPECT_TRUE(refuses_with([&] { mesh.dim_named("pp"); }, "pp", "dp=2,tp=4"));
  EXPECT_TRUE(refuses_with([] { Mesh({2}).dim_named("pp"); }, "pp", "no names"));
}

TEST(Mesh, IsEqualWhenShapeAndRanksAreWhateverTheNames) {
  EXPECT_EQ(Mesh({2, 2}, {"a", "b"}), Mesh({2, 2}));
  EXPECT_EQ(Mesh({2}, {0, 1}, {}), Mesh({2}));
  EXPECT_FALSE(Mesh({2}, {1, 0}, {}) == Mesh({2}));
  EXPECT_FALSE(Mesh({4}) == Mesh({2, 2}));
}

TEST(Mesh, IsWrittenByNameOrByShape) {
  EXPECT_EQ(to_string(Mesh({2, 4}, {"dp", "tp"})), "dp=2,tp=4");
  EXPECT_EQ(to_string(Mesh({2, 4})), "2x4");
}

TEST(Mesh, RefusesARankThatStandsTwice) {
  EXPECT_TRUE(refuses_with([] { Mesh({2, 2}, {0, 1, 1, 3}, {}); }, "rank 1", "positions 1 and 2"));
  EXPECT_TRUE(refuses_with([] { Mesh({3}, {0, 0, 0}, {}); }, "rank 0"));
}

TEST(Mesh, RefusesAnotherNumberOfRanksThanItsShape) {
  EXPECT_TRUE(refuses_with([] { Mesh({2, 2}, {0, 1, 2}, {}); }, "2x2", "4", "3"));
  EXPECT_TRUE(refuses_with([] { Mesh({2}, {0, 1, 2}, {}); }, "2 ranks", "3"));
}

TEST(Mesh, RefusesRanksThatAreNoNumbersOfProcesses) {
  EXPECT_TRUE(refuses_with([] { Mesh({2}, {0, -1}, {}); }, "rank -1"));
  EXPECT_TRUE(refuses_with([] { Mesh({1}, {INT64_MAX}, {}); }, std::to_string(INT64_MAX)));
}

TEST(Mesh, RefusesDimsWithoutRanks) {
  EXPECT_TRUE(refuses_with([] { Mesh({2, 0}); }, "dim 1", "0 ranks"));
  EXPECT_TRUE(refuses_with([] { Mesh({-3}); }, "dim 0", "-3"));
}

TEST(Mesh, RefusesAHugeShapeBeforeItTakesMemory) {
  EXPECT_TRUE(refuses_with([] { Mesh({int64_t{1} << 40}); }, "more than"));
  EXPECT_TRUE(refuses_with([] { Mesh({int64_t{1} << 32, int64_t{1} << 32}); }, "more than"));
  EXPECT_TRUE(refuses_with([] { Mesh({INT64_MAX, INT64_MAX, INT64_MAX}, {0}, {}); }, "more than"));
}

TEST(Mesh, RefusesNamesThatDoNotNameItsDims) {
  EXPECT_TRUE(refuses_with([] { Mesh({2, 2}, {"dp"}); }, "1 names", "2 dims"));
  EXPECT_TRUE(refuses_with([] { Mesh({2, 2}, {"dp", "dp"}); }, "'dp'"));
  EXPECT_TRUE(refuses_with([] { Mesh({2, 2}, {"dp", ""}); }, "dim 1", "empty"));
}

TEST(Mesh, RefusesSubmeshesAndFlatteningsThatAreNone) {
  const Mesh mesh({2, 2});
  EXPECT_TRUE(refuses_with([&] { mesh.submesh({0}, 4); }, "rank 4"));
  EXPECT_TRUE(refuses_with([&] { mesh.submesh({2}, 0); }, "2"));
  EXPECT_TRUE(refuses_with([&] { mesh.submesh({-1}, 0); }, "-1"));
  EXPECT_TRUE(refuses_with([&] { mesh.submesh({1, 1}, 0); }, "1,1", "distinct"));
  EXPECT_TRUE(refuses_with([&] { mesh.flattened(1, 0); }, "dims 1 to 0"));
  EXPECT_TRUE(refuses_with([&] { mesh.flattened(0, 2); }, "dims 0 to 2"));
  EXPECT_TRUE(refuses_with([&] { mesh.flattened(-1, 1); }, "dims -1 to 1"));
}

}  // namespace
}  // namespace shardway::testing
