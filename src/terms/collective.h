// The calls that ranks make together, by their numbers between ranks.
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
  mesh_broadcast,
  // torch.distributed's calls, on the backend:
  dist_all_reduce,
  dist_broadcast,
  dist_reduce,
  dist_all_gather,
  dist_gather,
  dist_scatter,
  dist_reduce_scatter,
  dist_all_to_all,
  dist_sparse_all_reduce,
  dist_barrier
};

inline constexpr int kCollectives = 23;

constexpr bool is_of_torch(Collective collective) { return collective >= Collective::dist_all_reduce; }

// The name by which its callers know it.
[[gnu::visibility("default")]] const char* name_of(Collective collective);

// "backward of all_gather_v".
const char* backward_name_of(Collective collective);

}  // namespace shardway
