// The routes of the collectives, built from a shape or from the sizes along one dim.
#include <numeric>

#include "shardway/route.h"

namespace shardway {
namespace {

std::vector<int64_t> with_extent(std::vector<int64_t> shape, int64_t dim, int64_t extent) {
  shape[static_cast<size_t>(dim)] = extent;
  return shape;
}

// The slab of a tensor that starts at `offset` along `dim`.
Box slab(const std::vector<int64_t>& shape, int64_t dim, int64_t offset, int64_t extent) {
  Box box = Box::whole(with_extent(shape, dim, extent));
  box.offset[static_cast<size_t>(dim)] = offset;
  return box;
}

// A part of size zero needs no move.
void add(Moves& moves, int64_t peer, int64_t extent, Box mine, Box theirs) {
  if (extent > 0) moves.push_back({.peer = peer, .mine = std::move(mine), .theirs = std::move(theirs)});
}

// avg is a sum with a divisor.
void set_op(Route& route, Op op) {
  route.op = op == Op::avg ? Op::sum : op;
  route.divisor = op == Op::avg ? route.size : 1;
}

void keep_those_with(Moves& moves, int64_t peer) {
  std::erase_if(moves, [peer](const Move& move) { return move.peer != peer; });
}

}  // namespace

std::vector<int64_t> chunk_sizes(int64_t length, int64_t parts) {
  const int64_t step = (length + parts - 1) / parts;
  std::vector<int64_t> sizes(static_cast<size_t>(parts), 0);
  for (int64_t& size : sizes) {
    size = std::min(step, length);
    length -= size;
  }
  return sizes;
}

Route all_gather_route(const Split& split, int64_t rank) {
  const auto& [shape, dim, sizes] = split;
  const auto ranks = static_cast<int64_t>(sizes.size());
  const int64_t mine = sizes[static_cast<size_t>(rank)];
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const int64_t my_offset = std::accumulate(sizes.begin(), sizes.begin() + rank, int64_t{0});

  Route route{.rank = rank, .size = ranks, .pattern = Pattern::all_gather};
  route.input_shape = with_extent(shape, dim, mine);
  route.output_shape = with_extent(shape, dim, total);
  int64_t offset = 0;
  for (int64_t peer = 0; peer < ranks; ++peer) {
    const int64_t size = sizes[static_cast<size_t>(peer)];
    add(route.pulls, peer, size, slab(shape, dim, offset, size), slab(shape, dim, 0, size));
    add(route.pushes, peer, mine, slab(shape, dim, 0, mine), slab(shape, dim, my_offset, mine));
    offset += size;
  }
  return route;
}

Route reduce_scatter_route(const Split& split, int64_t rank, Op op) {
  Route route = transposed(all_gather_route(split, rank));
  set_op(route, op);
  return route;
}

Route all_reduce_route(const std::vector<int64_t>& shape, int64_t rank, int64_t ranks, Op op) {
  Route route{.rank = rank, .size = ranks, .input_shape = shape, .output_shape = shape};
  route.pattern = Pattern::all_reduce;
  set_op(route, op);
  const Box whole = Box::whole(shape);
  for (int64_t peer = 0; peer < ranks; ++peer) {
    add(route.pulls, peer, whole.volume(), whole, whole);
    add(route.pushes, peer, whole.volume(), whole, whole);
  }
  return route;
}

Route broadcast_route(const std::vector<int64_t>& shape, int64_t rank, int64_t ranks, int64_t root) {
  Route route = all_reduce_route(shape, rank, ranks);
  route.pattern = Pattern::broadcast;
  keep_those_with(route.pulls, root);
  if (rank != root) route.pushes.clear();
  return route;
}

Route gather_route(const Split& split, int64_t rank, int64_t root) {
  Route route = all_gather_route(split, rank);
  route.pattern = Pattern::exchange;
  keep_those_with(route.pushes, root);
  if (rank == root) return route;
  route.pulls.clear();
  route.output_shape = with_extent(split.shape, split.dim, 0);
  return route;
}

Route scatter_route(const Split& split, int64_t rank, int64_t root) {
  return transposed(gather_route(split, rank, root));
}

Route all_to_all_route(const std::vector<int64_t>& shape, int64_t dim, const AllToAllSizes& sizes,
                       int64_t rank) {
  const auto ranks = static_cast<int64_t>(sizes.send.size());
  Route route{.rank = rank, .size = ranks, .pattern = Pattern::all_to_all};
  int64_t sent = 0;
  int64_t received = 0;
  for (int64_t peer = 0; peer < ranks; ++peer) {
    const auto p = static_cast<size_t>(peer);
    int64_t in_input = sizes.offset_in_input.empty() ? kUnknownOffset : sizes.offset_in_input[p];
    int64_t in_output = sizes.offset_in_output.empty() ? kUnknownOffset : sizes.offset_in_output[p];
    if (peer == rank) {
      in_input = sent;
      in_output = received;
    }
    add(route.pulls, peer, sizes.recv[p], slab(shape, dim, received, sizes.recv[p]),
        slab(shape, dim, in_input, sizes.recv[p]));
    add(route.pushes, peer, sizes.send[p], slab(shape, dim, sent, sizes.send[p]),
        slab(shape, dim, in_output, sizes.send[p]));
    received += sizes.recv[p];
    sent += sizes.send[p];
  }
  route.input_shape = with_extent(shape, dim, sent);
  route.output_shape = with_extent(shape, dim, received);
  return route;
}

}  // namespace shardway
