#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "arbitrary_routes.h"
#include "rank_simulator.h"
#include "shardway/route.h"

namespace shardway::testing {
namespace {

Shape with_size(Shape shape, int64_t dim, int64_t size) {
  shape[static_cast<size_t>(dim)] = size;
  return shape;
}

int64_t total(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

Index moved(Index index, int64_t dim, int64_t by) {
  index[static_cast<size_t>(dim)] += by;
  return index;
}

std::vector<Dense> outputs_of(const std::vector<Outcome>& outcomes) {
  std::vector<Dense> outputs;
  for (const Outcome& outcome : outcomes) outputs.push_back(outcome.output);
  return outputs;
}

// `parts`, one after the other along `dim`: written row by row, with no offsets computed.
Dense concatenated(const std::vector<Dense>& parts, int64_t dim, const Shape& shape) {
  Shape whole = with_size(shape, dim, 0);
  for (const Dense& part : parts) whole[static_cast<size_t>(dim)] += part.shape[static_cast<size_t>(dim)];
  Dense result = Dense::filled(whole, kUntouched);
  int64_t row = 0;
  for (const Dense& part : parts) {
    for (int64_t i = 0; i < part.shape[static_cast<size_t>(dim)]; ++i, ++row) {
      for (const Index& index : indices_of(Box::whole(with_size(shape, dim, 1)))) {
        result.at(moved(index, dim, row)) = part.at(moved(index, dim, i));
      }
    }
  }
  return result;
}

// `length` rows along `dim` from `begin` on.
Dense rows(const Dense& whole, int64_t dim, int64_t begin, int64_t length) {
  Dense result = Dense::filled(with_size(whole.shape, dim, length), kUntouched);
  for (const Index& index : indices_of(Box::whole(result.shape)))
    result.at(index) = whole.at(moved(index, dim, begin));
  return result;
}

int64_t folded(Op op, const std::vector<int64_t>& values) {
  switch (op) {
    case Op::sum:
      return total(values);
    case Op::avg:
      return total(values) / static_cast<int64_t>(values.size());
    case Op::min:
      return *std::min_element(values.begin(), values.end());
    case Op::max:
      return *std::max_element(values.begin(), values.end());
    case Op::product:
      return std::accumulate(values.begin(), values.end(), int64_t{1}, std::multiplies<>());
  }
  return kUntouched;
}

Dense combined(Op op, const std::vector<Dense>& addends) {
  Dense result = Dense::filled(addends[0].shape, kUntouched);
  for (size_t i = 0; i < result.values.size(); ++i) {
    std::vector<int64_t> values;
    for (const Dense& addend : addends) values.push_back(addend.values[i]);
    result.values[i] = folded(op, values);
  }
  return result;
}

RC_GTEST_PROP(AllGatherRoute, GivesEveryRankTheConcatenation, ()) {
  const Split split = any_split();
  const std::vector<Route> routes = all_gather_routes(split);
  std::vector<Dense> inputs;
  for (int64_t size : split.sizes) inputs.push_back(any_dense(with_size(split.shape, split.dim, size)));
  const Dense expected = concatenated(inputs, split.dim, split.shape);
  for (const Dense& output : outputs_of(simulate(routes, inputs))) RC_ASSERT(output == expected);
}

RC_GTEST_PROP(AllGatherRoute, FillsTheOutputWithoutReducing, ()) {
  for (const Route& route : all_gather_routes(any_split())) {
    const std::vector<Landing> parts = landings(route);
    RC_ASSERT(fills_output(parts, route));
    RC_ASSERT(!reduces(parts, route));
    RC_ASSERT(route.pattern == Pattern::all_gather);
  }
}

RC_GTEST_PROP(ReduceScatterRoute, GivesEachRankItsPartOfTheCombination, ()) {
  const Split split = any_split();
  const Op op = static_cast<Op>(any_between(0, 4));
  const auto ranks = static_cast<int64_t>(split.sizes.size());
  const std::vector<Route> routes = reduce_scatter_routes(split, op);
  std::vector<Dense> inputs;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    inputs.push_back(any_dense(with_size(split.shape, split.dim, total(split.sizes))));
    for (int64_t& value : inputs.back().values) value *= ranks;  // so that avg leaves no rest
  }
  const Dense whole = combined(op, inputs);
  const std::vector<Dense> outputs = outputs_of(simulate(routes, inputs));
  int64_t begin = 0;
  for (size_t rank = 0; rank < outputs.size(); ++rank) {
    RC_ASSERT(outputs[rank] == rows(whole, split.dim, begin, split.sizes[rank]));
    RC_ASSERT(routes[rank].pattern == Pattern::reduce_scatter);
    begin += split.sizes[rank];
  }
}

RC_GTEST_PROP(ReduceScatterRoute, EveryElementTakesOneAddendOfEachRank, ()) {
  const std::vector<Route> routes = reduce_scatter_routes(any_split());
  for (const Outcome& outcome : simulate(routes, any_inputs(routes))) {
    for (int64_t landed : outcome.landed.values) RC_ASSERT(landed == static_cast<int64_t>(routes.size()));
  }
}

TEST(ReduceScatterRoute, AvgIsSumWithTheRanksAsDivisor) {
  const Route route = reduce_scatter_route({.shape = {0}, .dim = 0, .sizes = {1, 2, 0}}, 1, Op::avg);
  EXPECT_EQ(route.op, Op::sum);
  EXPECT_EQ(route.divisor, 3);
  EXPECT_EQ(reduce_scatter_route({.shape = {0}, .dim = 0, .sizes = {1, 2, 0}}, 1, Op::max).divisor, 1);
}

RC_GTEST_PROP(AllToAllRoute, GivesBlockRToRankRInRankOrder, ()) {
  const Split like = any_split();
  const auto blocks = any_block_sizes(static_cast<int64_t>(like.sizes.size()));
  const std::vector<Route> routes = all_to_all_routes(like.shape, like.dim, blocks);
  std::vector<Dense> inputs;
  for (const auto& sent : blocks) inputs.push_back(any_dense(with_size(like.shape, like.dim, total(sent))));
  const std::vector<Dense> outputs = outputs_of(simulate(routes, inputs));
  for (size_t to = 0; to < routes.size(); ++to) {
    std::vector<Dense> arriving;
    for (size_t from = 0; from < routes.size(); ++from) {
      const int64_t begin =
          std::accumulate(blocks[from].begin(), blocks[from].begin() + static_cast<int64_t>(to), int64_t{0});
      arriving.push_back(rows(inputs[from], like.dim, begin, blocks[from][to]));
    }
    RC_ASSERT(outputs[to] == concatenated(arriving, like.dim, like.shape));
    RC_ASSERT(routes[to].pattern == Pattern::all_to_all);
    RC_ASSERT(fills_output(landings(routes[to]), routes[to]));
  }
}

// A rank that was told only its own sizes sends and receives the same; its own offsets it knows.
RC_GTEST_PROP(AllToAllRoute, OffsetsOfPeersMayBeUnknown, ()) {
  const Split like = any_split();
  for (Route known :
       all_to_all_routes(like.shape, like.dim, any_block_sizes(static_cast<int64_t>(like.sizes.size())))) {
    AllToAllSizes sizes{.send = std::vector<int64_t>(like.sizes.size(), 0),
                        .recv = std::vector<int64_t>(like.sizes.size(), 0)};
    const auto d = static_cast<size_t>(like.dim);
    for (const Move& push : known.pushes) sizes.send[static_cast<size_t>(push.peer)] = push.mine.extent[d];
    for (const Move& pull : known.pulls) sizes.recv[static_cast<size_t>(pull.peer)] = pull.mine.extent[d];
    const Route unknown = all_to_all_route(like.shape, like.dim, sizes, known.rank);
    for (Moves* moves : {&known.pulls, &known.pushes}) {
      for (Move& move : *moves) {
        if (move.peer != known.rank) move.theirs.offset[d] = kUnknownOffset;
      }
    }
    RC_ASSERT(unknown == known);
    validate(unknown);
  }
}

RC_GTEST_PROP(AllReduceRoute, GivesEveryRankTheCombination, ()) {
  const Shape shape = any_split().shape;
  const int64_t ranks = any_between(1, 4);
  const Op op = static_cast<Op>(any_between(0, 4));
  std::vector<Route> routes;
  std::vector<Dense> inputs;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    routes.push_back(all_reduce_route(shape, rank, ranks, op));
    validate(routes.back());
    inputs.push_back(any_dense(shape));
    for (int64_t& value : inputs.back().values) value *= ranks;  // so that avg leaves no rest
  }
  const Dense expected = combined(op, inputs);
  for (const Dense& output : outputs_of(simulate(routes, inputs))) RC_ASSERT(output == expected);
  if (op == Op::sum) RC_ASSERT(transposed(routes[0]) == routes[0]);
}

RC_GTEST_PROP(BroadcastRoute, GivesTheRootsTensorAndItsAdjointAddsUpThere, ()) {
  const Shape shape = any_split().shape;
  const int64_t ranks = any_between(1, 4);
  const int64_t root = any_between(0, ranks - 1);
  std::vector<Route> routes;
  std::vector<Route> adjoints;
  std::vector<Dense> inputs;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    routes.push_back(broadcast_route(shape, rank, ranks, root));
    validate(routes.back());
    adjoints.push_back(transposed(routes.back()));
    inputs.push_back(any_dense(shape));
  }
  for (const Dense& output : outputs_of(simulate(routes, inputs)))
    RC_ASSERT(output == inputs[static_cast<size_t>(root)]);
  const std::vector<Dense> sums = outputs_of(simulate(adjoints, inputs));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const Dense expected = rank == root ? combined(Op::sum, inputs) : Dense::filled(shape, kUntouched);
    RC_ASSERT(sums[static_cast<size_t>(rank)] == expected);
  }
}

RC_GTEST_PROP(GatherRoute, ConcatenatesOnTheRootAndScattersBack, ()) {
  const Split split = any_split();
  const auto ranks = static_cast<int64_t>(split.sizes.size());
  const int64_t root = any_between(0, ranks - 1);
  std::vector<Route> gathers;
  std::vector<Route> scatters;
  std::vector<Dense> inputs;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    gathers.push_back(gather_route(split, rank, root));
    scatters.push_back(scatter_route(split, rank, root));
    validate(gathers.back());
    validate(scatters.back());
    inputs.push_back(any_dense(with_size(split.shape, split.dim, split.sizes[static_cast<size_t>(rank)])));
  }
  const std::vector<Dense> gathered = outputs_of(simulate(gathers, inputs));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const Dense nothing{.shape = with_size(split.shape, split.dim, 0)};
    const Dense expected = rank == root ? concatenated(inputs, split.dim, split.shape) : nothing;
    RC_ASSERT(gathered[static_cast<size_t>(rank)] == expected);
  }
  RC_ASSERT(outputs_of(simulate(scatters, gathered)) == inputs);
}

RC_GTEST_PROP(RaggedRoutes, ARankHasAtMostOneMoveEachWayPerPeer, ()) {
  const std::vector<Route> routes = any_routes();
  RC_PRE(routes[0].pattern != Pattern::exchange);
  for (const Route& route : routes) {
    RC_ASSERT(route.pulls.size() <= routes.size());
    RC_ASSERT(route.pushes.size() <= routes.size());
  }
}

TEST(RaggedRoutes, AnEmptyRankIsNeitherSentToNorPulledFrom) {
  const Split split{.shape = {0, 3}, .dim = 0, .sizes = {2, 0, 1}};
  EXPECT_TRUE(all_gather_route(split, 1).pushes.empty());
  EXPECT_EQ(all_gather_route(split, 0).pulls.size(), 2U);
  EXPECT_TRUE(reduce_scatter_route(split, 1).pulls.empty());
  EXPECT_EQ(reduce_scatter_route(split, 0).pushes.size(), 2U);
}

// The worked example of struct Route.
TEST(RaggedRoutes, TwoRanksWithOneAndTwoRowsGatheredAsRank0SeesThem) {
  const Route route = all_gather_route({.shape = {0}, .dim = 0, .sizes = {1, 2}}, 0);
  const Box row{.offset = {0}, .extent = {1}};
  const Box rows_of_1{.offset = {1}, .extent = {2}};
  EXPECT_EQ(route.pulls, (Moves{{.peer = 0, .mine = row, .theirs = row},
                                {.peer = 1, .mine = rows_of_1, .theirs = Box::whole({2})}}));
  EXPECT_EQ(route.pushes,
            (Moves{{.peer = 0, .mine = row, .theirs = row}, {.peer = 1, .mine = row, .theirs = row}}));
  EXPECT_EQ(route.input_shape, (Shape{1}));
  EXPECT_EQ(route.output_shape, (Shape{3}));
}

// As torch's documentation states chunk: pieces of ceil(length / parts), the last one smaller, perhaps fewer.
std::vector<int64_t> sizes_of_chunks(int64_t length, int64_t parts) {
  std::vector<int64_t> sizes(static_cast<size_t>(parts), 0);
  const int64_t piece = length / parts + (length % parts != 0 ? 1 : 0);
  for (int64_t i = 0; i < length; ++i) ++sizes[static_cast<size_t>(i / piece)];
  return sizes;
}

RC_GTEST_PROP(ChunkSizes, AreThoseOfTorchChunk, ()) {
  const int64_t length = any_between(0, 40);
  const int64_t parts = any_between(1, 9);
  RC_ASSERT(chunk_sizes(length, parts) == sizes_of_chunks(length, parts));
}

TEST(ChunkSizes, LeaveTheLastRanksEmpty) {
  EXPECT_EQ(chunk_sizes(5, 4), (std::vector<int64_t>{2, 2, 1, 0}));
  EXPECT_EQ(chunk_sizes(4, 3), (std::vector<int64_t>{2, 2, 0}));
  EXPECT_EQ(chunk_sizes(0, 2), (std::vector<int64_t>{0, 0}));
}

}  // namespace
}  // namespace shardway::testing
