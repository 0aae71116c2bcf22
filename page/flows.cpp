#include "page/flows.h"

#include <map>

#include "page/pieces.h"
#include "plan/geometry/all_reduce_shares.h"

namespace shardway::page {
namespace {

using BytesByPeer = std::map<int64_t, int64_t>;

BytesByPeer received_in_all_reduce(const Step& step, int64_t rank) {
  BytesByPeer received;
  const auto position = step.from.mesh().position_of(rank);
  if (!position) return received;
  const Mesh members = step.from.mesh().submesh(step.mesh_dims, rank);
  const AllReduceShares shares(step.from.box_at(*position).extent, members.size());
  const int64_t addend = shares.of(*members.position_of(rank));
  for (int64_t i = 0; i < members.size(); ++i) {
    received[members.ranks()[static_cast<size_t>(i)]] =
        (addend + shares.of(i)) * item_bytes(step.from.dtype());
  }
  return received;
}

BytesByPeer received_in(const Step& step, const Route& route) {
  if (step.kind == StepKind::all_reduce) return received_in_all_reduce(step, route.rank);
  BytesByPeer received;
  for (const TakenBox& part : taken_boxes(step, route)) received[part.peer] += bytes_of(part.box, step.from);
  return received;
}

}  // namespace

std::vector<TileFlow> flows_into(int64_t tile, const Step& step, const Route& route, const Tiling& tiling) {
  BytesByPeer by_tile;
  for (const auto& [peer, bytes] : received_in(step, route)) {
    if (peer != route.rank && bytes > 0) by_tile[tiling.tile_of_rank[static_cast<size_t>(peer)]] += bytes;
  }
  std::vector<TileFlow> flows;
  for (const auto& [from, bytes] : by_tile) flows.push_back({.from = from, .to = tile, .bytes = bytes});
  return flows;
}

}  // namespace shardway::page
