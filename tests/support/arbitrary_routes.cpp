#include "arbitrary_routes.h"

#include <rapidcheck.h>

#include <algorithm>

namespace shardway {

void showValue(const Box& box, std::ostream& out) { out << to_string(box); }

void showValue(const Route& route, std::ostream& out) {
  out << "rank " << route.rank << " of " << route.size << ", input "
      << to_string(Box::whole(route.input_shape)) << ", output " << to_string(Box::whole(route.output_shape))
      << ", " << name_of(route.op) << '/' << route.divisor;
  const auto list = [&out](const char* what, const Moves& moves) {
    for (const Move& move : moves) {
      out << "\n  " << what << move.peer << ": mine " << to_string(move.mine) << ", theirs "
          << to_string(move.theirs);
    }
  };
  list("pull from ", route.pulls);
  list("push to ", route.pushes);
}

}  // namespace shardway

namespace shardway::testing {
namespace {

// Zero now and then: one such extent empties the whole box.
int64_t any_extent(int64_t most) { return most > 0 && any_between(0, 9) > 0 ? any_between(1, most) : 0; }

// Where the block of `index` begins when blocks lie one after the other.
int64_t begin_of(const std::vector<int64_t>& blocks, size_t index) {
  int64_t begin = 0;
  for (size_t i = 0; i < index; ++i) begin += blocks[i];
  return begin;
}

std::vector<Dense> any_dense_each(const std::vector<Shape>& shapes) {
  std::vector<Dense> arrays;
  for (const Shape& shape : shapes) arrays.push_back(any_dense(shape));
  return arrays;
}

}  // namespace

int64_t any_between(int64_t least, int64_t most) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(least, most + 1));
}

Shape any_shape(int64_t dims, int64_t most) {
  Shape shape;
  for (int64_t d = 0; d < dims; ++d) shape.push_back(any_extent(most));
  return shape;
}

Split any_split() {
  const int64_t ranks = any_between(1, 5);
  const int64_t dims = any_between(1, 4);
  Split split{.shape = any_shape(dims, 3), .dim = any_between(0, dims - 1)};
  for (int64_t rank = 0; rank < ranks; ++rank) split.sizes.push_back(any_between(0, 3));
  return split;
}

Box any_box_within(const Shape& shape) {
  Box box;
  for (int64_t length : shape) {
    box.extent.push_back(any_extent(length));
    box.offset.push_back(any_between(0, length - box.extent.back()));
  }
  return box;
}

Dense any_dense(const Shape& shape) {
  Dense array = Dense::filled(shape, 0);
  for (int64_t& value : array.values) value = any_between(-1000, 1000);
  return array;
}

std::vector<Dense> any_inputs(const std::vector<Route>& routes) {
  std::vector<Shape> shapes;
  for (const Route& route : routes) shapes.push_back(route.input_shape);
  return any_dense_each(shapes);
}

std::vector<Dense> any_outputs(const std::vector<Route>& routes) {
  std::vector<Shape> shapes;
  for (const Route& route : routes) shapes.push_back(route.output_shape);
  return any_dense_each(shapes);
}

std::vector<std::vector<int64_t>> any_block_sizes(int64_t ranks) {
  std::vector<std::vector<int64_t>> blocks(static_cast<size_t>(ranks));
  for (auto& row : blocks) {
    for (int64_t to = 0; to < ranks; ++to) row.push_back(any_between(0, 3));
  }
  return blocks;
}

Exchange any_exchange() {
  const int64_t ranks = any_between(1, 5);
  const int64_t dims = any_between(1, 4);
  Exchange exchange;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    exchange.input_shapes.push_back(any_shape(dims, 4));
    exchange.output_shapes.push_back(any_shape(dims, 4));
  }
  for (int64_t left = any_between(0, 3 * ranks); left > 0; --left) {
    Transfer transfer{.from = any_between(0, ranks - 1), .to = any_between(0, ranks - 1)};
    const Shape& source = exchange.input_shapes[static_cast<size_t>(transfer.from)];
    const Shape& target = exchange.output_shapes[static_cast<size_t>(transfer.to)];
    for (size_t d = 0; d < source.size(); ++d) {
      const int64_t extent = any_extent(std::min(source[d], target[d]));
      transfer.source.extent.push_back(extent);
      transfer.source.offset.push_back(any_between(0, source[d] - extent));
      transfer.target.extent.push_back(extent);
      transfer.target.offset.push_back(any_between(0, target[d] - extent));
    }
    exchange.transfers.push_back(transfer);
  }
  return exchange;
}

std::vector<Route> any_routes() {
  switch (any_between(0, 3)) {
    case 0:
      return all_gather_routes(any_split());
    case 1:
      return reduce_scatter_routes(any_split());
    case 2: {
      const Split split = any_split();
      return all_to_all_routes(split.shape, split.dim,
                               any_block_sizes(static_cast<int64_t>(split.sizes.size())));
    }
    default:
      return routes_of(any_exchange());
  }
}

std::vector<Route> all_gather_routes(const Split& split) {
  std::vector<Route> routes;
  for (size_t rank = 0; rank < split.sizes.size(); ++rank) {
    routes.push_back(all_gather_route(split, static_cast<int64_t>(rank)));
  }
  return routes;
}

std::vector<Route> reduce_scatter_routes(const Split& split, Op op) {
  std::vector<Route> routes;
  for (size_t rank = 0; rank < split.sizes.size(); ++rank) {
    routes.push_back(reduce_scatter_route(split, static_cast<int64_t>(rank), op));
  }
  return routes;
}

std::vector<Route> all_to_all_routes(const Shape& shape, int64_t dim,
                                     const std::vector<std::vector<int64_t>>& blocks) {
  const size_t ranks = blocks.size();
  std::vector<std::vector<int64_t>> received(ranks);
  for (size_t to = 0; to < ranks; ++to) {
    for (size_t from = 0; from < ranks; ++from) received[to].push_back(blocks[from][to]);
  }
  std::vector<Route> routes;
  for (size_t rank = 0; rank < ranks; ++rank) {
    AllToAllSizes sizes{.send = blocks[rank], .recv = received[rank]};
    for (size_t peer = 0; peer < ranks; ++peer) {
      sizes.offset_in_input.push_back(begin_of(blocks[peer], rank));
      sizes.offset_in_output.push_back(begin_of(received[peer], rank));
    }
    routes.push_back(all_to_all_route(shape, dim, sizes, static_cast<int64_t>(rank)));
  }
  return routes;
}

std::vector<Route> routes_of(const Exchange& exchange) {
  std::vector<Route> routes;
  for (size_t rank = 0; rank < exchange.input_shapes.size(); ++rank) {
    routes.push_back(route_of(exchange, static_cast<int64_t>(rank)));
  }
  return routes;
}

}  // namespace shardway::testing
