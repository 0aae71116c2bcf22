#include "shardway/route.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>

#include "arbitrary_routes.h"
#include "moves.h"
#include "rank_simulator.h"

namespace shardway::testing {
namespace {

std::vector<Route> each(const std::vector<Route>& routes, Route (*change)(const Route&)) {
  std::vector<Route> changed;
  for (const Route& route : routes) changed.push_back(change(route));
  return changed;
}

// The k-th push of a to b is the k-th pull of b from a, boxes included, and moves are ordered by peer.
void assert_pulls_match_pushes(const std::vector<Route>& routes) {
  const auto by_peer = [](const Move& a, const Move& b) { return a.peer < b.peer; };
  for (size_t a = 0; a < routes.size(); ++a) {
    RC_ASSERT(routes[a].rank == static_cast<int64_t>(a));
    RC_ASSERT(routes[a].size == static_cast<int64_t>(routes.size()));
    RC_ASSERT(std::is_sorted(routes[a].pulls.begin(), routes[a].pulls.end(), by_peer));
    RC_ASSERT(std::is_sorted(routes[a].pushes.begin(), routes[a].pushes.end(), by_peer));
    for (size_t b = 0; b < routes.size(); ++b) {
      const Moves pushes = with_peer(routes[a].pushes, static_cast<int64_t>(b));
      const Moves pulls = with_peer(routes[b].pulls, static_cast<int64_t>(a));
      RC_ASSERT(pushes.size() == pulls.size());
      for (size_t k = 0; k < pushes.size(); ++k) {
        RC_ASSERT(pushes[k].mine == pulls[k].theirs);
        RC_ASSERT(pushes[k].theirs == pulls[k].mine);
      }
    }
  }
}

// The outputs of a linear collective: zero where nothing landed.
std::vector<Dense> applied(const std::vector<Route>& routes, const std::vector<Dense>& inputs) {
  std::vector<Dense> outputs;
  for (Outcome& outcome : simulate(routes, inputs)) {
    for (size_t i = 0; i < outcome.output.values.size(); ++i) {
      if (outcome.landed.values[i] == 0) outcome.output.values[i] = 0;
    }
    outputs.push_back(std::move(outcome.output));
  }
  return outputs;
}

RC_GTEST_PROP(Route, TransposingTwiceGivesTheRouteBack, ()) {
  for (const Route& route : any_routes()) RC_ASSERT(transposed(transposed(route)) == route);
}

RC_GTEST_PROP(Route, TransposingExchangesInputAndOutput, ()) {
  for (const Route& route : any_routes()) {
    const Route back = transposed(route);
    RC_ASSERT(back.input_shape == route.output_shape);
    RC_ASSERT(back.output_shape == route.input_shape);
    RC_ASSERT(back.rank == route.rank);
    RC_ASSERT(back.size == route.size);
    RC_ASSERT(back.divisor == route.divisor);
  }
}

RC_GTEST_PROP(Route, PullsAndPushesOfAllRanksMatch, ()) { assert_pulls_match_pushes(any_routes()); }

RC_GTEST_PROP(Route, PullsAndPushesOfAllRanksMatchAfterTransposing, ()) {
  assert_pulls_match_pushes(each(any_routes(), transposed));
}

RC_GTEST_PROP(Route, NoTwoMovesWriteOneElementUnlessTheRouteReduces, ()) {
  const std::vector<Route> routes = any_routes();
  const std::vector<Outcome> outcomes = simulate(routes, any_inputs(routes));
  for (size_t rank = 0; rank < routes.size(); ++rank) {
    const std::vector<int64_t>& landed = outcomes[rank].landed.values;
    const bool combines = std::any_of(landed.begin(), landed.end(), [](int64_t n) { return n > 1; });
    RC_ASSERT(reduces(landings(routes[rank]), routes[rank]) == combines);
    const Pattern pattern = routes[rank].pattern;
    if (pattern == Pattern::all_gather || pattern == Pattern::all_to_all) RC_ASSERT(!combines);
  }
}

// The simulator refuses an index outside an array; what lies outside every box must stay as it was.
RC_GTEST_PROP(Route, NothingOutsideABoxIsTouched, ()) {
  std::vector<Route> routes = any_routes();
  if (any_between(0, 1) == 1) routes = each(routes, transposed);
  const std::vector<Outcome> outcomes = simulate(routes, any_inputs(routes));
  for (size_t rank = 0; rank < routes.size(); ++rank) {
    const Moves& pulls = routes[rank].pulls;
    for (const Index& index : indices_of(Box::whole(routes[rank].output_shape))) {
      const bool in_a_box =
          std::any_of(pulls.begin(), pulls.end(), [&](const Move& m) { return is_inside(index, m.mine); });
      if (!in_a_box) RC_ASSERT(outcomes[rank].output.at(index) == kUntouched);
      RC_ASSERT((outcomes[rank].landed.at(index) > 0) == in_a_box);
    }
  }
}

RC_GTEST_PROP(Route, EveryBuiltRouteAndItsTransposeAreValid, ()) {
  for (const Route& route : any_routes()) {
    validate(route);
    validate(transposed(route));
    validate(own_part(route));
  }
}

// ⟨Ax, y⟩ = ⟨x, Aᵀy⟩ summed over ranks, in exact integers; the factor keeps divisions exact.
RC_GTEST_PROP(Route, TransposedIsTheAdjoint, ()) {
  std::vector<Route> routes = any_routes();
  const int64_t divisor = any_between(1, 3);
  for (Route& route : routes) route.divisor = divisor;
  std::vector<Dense> x = any_inputs(routes);
  std::vector<Dense> y = any_outputs(routes);
  for (std::vector<Dense>* arrays : {&x, &y}) {
    for (Dense& array : *arrays) {
      for (int64_t& value : array.values) value *= divisor;
    }
  }
  RC_ASSERT(inner_product(applied(routes, x), y) == inner_product(x, applied(each(routes, transposed), y)));
}

RC_GTEST_PROP(Route, OwnPartIsWhatARankGivesItself, ()) {
  const std::vector<Route> routes = any_routes();
  const std::vector<Dense> inputs = any_inputs(routes);
  const std::vector<Dense> outputs = applied(each(routes, own_part), inputs);
  for (size_t rank = 0; rank < routes.size(); ++rank) {
    std::vector<Dense> only_mine = inputs;
    for (size_t other = 0; other < routes.size(); ++other) {
      if (other != rank) only_mine[other] = Dense::filled(inputs[other].shape, 0);
    }
    RC_ASSERT(outputs[rank] == applied(routes, only_mine)[rank]);
  }
}

RC_GTEST_PROP(Route, OwnPartAndTransposingCommute, ()) {
  for (const Route& route : any_routes())
    RC_ASSERT(own_part(transposed(route)) == transposed(own_part(route)));
}

TEST(Route, OwnPartCommunicatesNothing) {
  const Route route = all_gather_route({.shape = {0, 4}, .dim = 0, .sizes = {1, 2}}, 1);
  EXPECT_EQ(own_part(route).pattern, Pattern::own);
  EXPECT_EQ(own_part(route).pulls,
            (Moves{{.peer = 1, .mine = {{1, 0}, {2, 4}}, .theirs = {{0, 0}, {2, 4}}}}));
}

TEST(Route, TransposedGatherIsReduceScatterAndBack) {
  const Split split{.shape = {0, 4}, .dim = 0, .sizes = {1, 2}};
  EXPECT_EQ(transposed(all_gather_route(split, 0)).pattern, Pattern::reduce_scatter);
  EXPECT_EQ(transposed(reduce_scatter_route(split, 0)).pattern, Pattern::all_gather);
  EXPECT_EQ(transposed(reduce_scatter_route(split, 1)), all_gather_route(split, 1));
}

TEST(Route, TransposedAllToAllAndExchangeKeepTheirPattern) {
  EXPECT_EQ(transposed(Route{.pattern = Pattern::all_to_all}).pattern, Pattern::all_to_all);
  EXPECT_EQ(transposed(Route{}).pattern, Pattern::exchange);
}

// The text of what `action` throws.
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Route, MinMaxAndProductHaveNoAdjoint) {
  for (Op op : {Op::min, Op::max, Op::product}) {
    EXPECT_EQ(refusal([&] { transposed(Route{.op = op}); }),
              std::string("route: ") + name_of(op) + " is not linear and has no adjoint");
  }
}

TEST(Op, NamesAreTorchsWordsAndMeanIsAvg) {
  for (Op op : {Op::sum, Op::avg, Op::min, Op::max, Op::product}) EXPECT_EQ(op_from_name(name_of(op)), op);
  EXPECT_EQ(op_from_name("product"), Op::product);
  EXPECT_EQ(op_from_name("mean"), Op::avg);
  EXPECT_EQ(refusal([] { op_from_name("prod"); }),
            "op='prod' is not one of sum, avg (or mean), min, max, product");
}

// Two rows to oneself, three to rank 1.
Route valid_route() {
  Route route{.rank = 0, .size = 2, .input_shape = {5, 4}, .output_shape = {2, 4}};
  route.pulls = {{.peer = 0, .mine = {{0, 0}, {2, 4}}, .theirs = {{0, 0}, {2, 4}}}};
  route.pushes = {{.peer = 0, .mine = {{0, 0}, {2, 4}}, .theirs = {{0, 0}, {2, 4}}},
                  {.peer = 1, .mine = {{2, 0}, {3, 4}}, .theirs = {{0, 0}, {3, 4}}}};
  return route;
}

std::string refusal_once_spoilt(const std::function<void(Route&)>& spoil) {
  Route route = valid_route();
  spoil(route);
  return refusal([&] { validate(route); });
}

TEST(Validate, AcceptsAValidRoute) { EXPECT_NO_THROW(validate(valid_route())); }

TEST(Validate, AcceptsARouteWithNoMoves) { EXPECT_NO_THROW(validate(Route{})); }

TEST(Validate, AcceptsOffsetsThatOnlyThePeerKnows) {
  Route route = valid_route();
  route.pushes[1].theirs.offset = {kUnknownOffset, 0};
  EXPECT_NO_THROW(validate(route));
}

TEST(Validate, RefusesARankThatIsNotInTheGroup) {
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.rank = 2; }), "route: rank 2 is not one of 2");
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.rank = -1; }), "route: rank -1 is not one of 2");
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.size = 0; }), "route: rank 0 is not one of 0");
}

TEST(Validate, RefusesAPeerThatIsNotInTheGroup) {
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.pushes[1].peer = 2; }),
            "route: pushes[1] with rank 2 names no rank of 2");
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.pulls[0].peer = -1; }),
            "route: pulls[0] with rank -1 names no rank of 2");
}

TEST(Validate, RefusesMovesOutOfRankOrder) {
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { std::swap(r.pushes[0], r.pushes[1]); }),
            "route: pushes[1] with rank 0 is out of rank order");
}

TEST(Validate, RefusesABoxOfAnotherNumberOfDims) {
  const std::string why = "has a box of another number of dims than its tensor";
  EXPECT_EQ(refusal_once_spoilt([](Route& r) {
              r.pulls[0].mine = {{0}, {8}};
            }),
            "route: pulls[0] with rank 0 " + why);
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.pushes[1].mine.extent = {12}; }),
            "route: pushes[1] with rank 1 " + why);
}

TEST(Validate, RefusesABoxOutsideItsTensor) {
  EXPECT_EQ(refusal_once_spoilt([](Route& r) {
              r.pushes[1].mine.offset = {3, 0};
            }),
            "route: pushes[1] with rank 1 has the box [3,6)×[0,4) outside its tensor [0,5)×[0,4)");
  EXPECT_EQ(refusal_once_spoilt([](Route& r) {
              r.pulls[0].mine.offset = {-1, 0};
            }),
            "route: pulls[0] with rank 0 has the box [-1,1)×[0,4) outside its tensor [0,2)×[0,4)");
}

TEST(Validate, RefusesABoxOfNegativeExtent) {
  EXPECT_EQ(refusal_once_spoilt([](Route& r) {
              r.pulls[0].mine = {{1, 1}, {-1, -1}};
            }),
            "route: pulls[0] with rank 0 has a box of negative extent: [1,0)×[1,0)");
}

TEST(Validate, RefusesBoxesOfDifferentExtent) {
  EXPECT_EQ(refusal_once_spoilt([](Route& r) {
              r.pushes[1].theirs.extent = {2, 4};
            }),
            "route: pushes[1] with rank 1 has boxes of different extent: [2,5)×[0,4) and [0,2)×[0,4)");
  EXPECT_EQ(refusal_once_spoilt([](Route& r) {
              r.pushes[1].theirs.extent = {4, 3};
            }),
            "route: pushes[1] with rank 1 has boxes of different extent: [2,5)×[0,4) and [0,4)×[0,3)");
}

TEST(Validate, RefusesThePeersBoxOfAnotherNumberOfDims) {
  const auto refused = [](const Box& theirs) {
    return refusal_once_spoilt([&](Route& r) {
             r.pushes[1].theirs = theirs;
           }).rfind("route: pushes[1] with rank 1 has boxes of different", 0) == 0;
  };
  EXPECT_TRUE(refused({{0}, {3, 4}}));
  EXPECT_TRUE(refused({{0, 0}, {12}}));
  EXPECT_TRUE(refused({{0, 0, 0}, {3, 4}}));
}

TEST(Validate, RefusesABoxWhoseEndIsPastTheLargestNumber) {
  const std::string text = refusal_once_spoilt(
      [](Route& r) { r.pushes[1].mine.offset[0] = std::numeric_limits<int64_t>::max() - 1; });
  EXPECT_NE(text.find("outside its tensor"), std::string::npos) << text;
}

// What a rank gives itself needs no message: one of the two lists is read, so they must agree.
TEST(Validate, RefusesMovesToItselfThatDoNotMatch) {
  const std::string why = "route: the pulls of rank 0 from itself are not its pushes to itself";
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.pulls[0].theirs.offset = {9, 0}; }), why);
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.pulls[0].theirs.offset = {kUnknownOffset, 0}; }), why);
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.pushes[0].theirs.offset = {1, 0}; }), why);
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.pulls.clear(); }), why);
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.pushes.erase(r.pushes.begin()); }), why);
}

TEST(Validate, RefusesADivisorBelowOneAndAvgWithoutOne) {
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.divisor = 0; }), "route: divisor 0 is below 1");
  EXPECT_EQ(refusal_once_spoilt([](Route& r) { r.op = Op::avg; }),
            "route: avg is written as sum with a divisor");
}

}  // namespace
}  // namespace shardway::testing
