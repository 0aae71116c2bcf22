#include "transport/hosts/route_numbers.h"

#include <limits>

namespace shardway {
namespace {

using wire::append_list;
using wire::NumberReader;

constexpr int64_t kMostDims = 64;

std::vector<int64_t> next_shape(NumberReader& reader) {
  std::vector<int64_t> shape(static_cast<size_t>(reader.next(0, kMostDims)));
  for (int64_t& length : shape) length = reader.next(0);
  return shape;
}

Moves next_moves(NumberReader& reader, size_t shape_dims) {
  const auto dims = static_cast<int64_t>(shape_dims);
  Moves moves;
  for (int64_t count = reader.next(0, kMostRouteNumbers); count > 0; --count) {
    Move move{.peer = reader.next()};
    move.mine = {.offset = reader.take(dims), .extent = reader.take(dims)};
    move.theirs = {.offset = reader.take(dims), .extent = move.mine.extent};
    moves.push_back(std::move(move));
  }
  return moves;
}

void append(std::vector<int64_t>& to, const Dims& numbers) {
  to.insert(to.end(), numbers.begin(), numbers.end());
}

void append_moves(std::vector<int64_t>& to, const Moves& moves) {
  to.push_back(static_cast<int64_t>(moves.size()));
  for (const Move& move : moves) {
    to.push_back(move.peer);
    append(to, move.mine.offset);
    append(to, move.mine.extent);
    append(to, move.theirs.offset);
  }
}

}  // namespace

void append_route(std::vector<int64_t>& to, const ToldRoute& told) {
  const Route& route = told.route;
  to.insert(to.end(), {told.has_contiguous_input ? 1 : 0, told.has_contiguous_output ? 1 : 0,
                       static_cast<int64_t>(route.op), route.divisor});
  append_list(to, route.input_shape);
  append_list(to, route.output_shape);
  append_moves(to, route.pulls);
  append_moves(to, route.pushes);
}

ToldRoute next_route(NumberReader& reader, int64_t rank, int64_t ranks) {
  ToldRoute told;
  told.has_contiguous_input = reader.next() != 0;
  told.has_contiguous_output = reader.next() != 0;
  Route& route = told.route;
  route.rank = rank;
  route.size = ranks;
  route.op = static_cast<Op>(reader.next(0, static_cast<int64_t>(Op::product)));
  route.divisor = reader.next();
  route.input_shape = next_shape(reader);
  route.output_shape = next_shape(reader);
  route.pulls = next_moves(reader, route.output_shape.size());
  route.pushes = next_moves(reader, route.input_shape.size());
  validate(route);
  return told;
}

}  // namespace shardway
