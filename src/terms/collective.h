// The collectives by their numbers between ranks.
#pragma once

#include <cstdint>

namespace shardway {

enum class Collective : uint8_t {
  all_gather_v,
  reduce_scatter_v,
  all_to_all_v,
  gather_sizes,
  redistribute,
  distribute,
  all_reduce,
  broadcast,
  gather_v,
  scatter_v,
  shard_dim_alltoall,
  mesh_scatter,
  mesh_broadcast
};

inline constexpr int kCollectives = 13;

}  // namespace shardway
