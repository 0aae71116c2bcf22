#include "terms/collective.h"

#include <array>
#include <cstddef>

namespace shardway {

const char* name_of(Collective collective) {
  constexpr std::array kNames = {"all_gather_v",
                                 "reduce_scatter_v",
                                 "all_to_all_v",
                                 "gather_sizes",
                                 "redistribute",
                                 "distribute",
                                 "all_reduce",
                                 "broadcast",
                                 "gather_v",
                                 "scatter_v",
                                 "shard_dim_alltoall",
                                 "mesh_scatter",
                                 "mesh_broadcast",
                                 "all_reduce",
                                 "broadcast",
                                 "reduce",
                                 "all_gather",
                                 "gather",
                                 "scatter",
                                 "reduce_scatter",
                                 "all_to_all",
                                 "sparse_all_reduce",
                                 "barrier"};
  static_assert(kNames.size() == kCollectives);
  return kNames.at(static_cast<size_t>(collective));
}

}  // namespace shardway
