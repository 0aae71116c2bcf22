#include "terms/collective.h"

#include <array>
#include <cstddef>
#include <string>

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

const char* backward_name_of(Collective collective) {
  static const auto* names =
      [] {  // never destroyed: the record of calls may ask until the end of the process
        auto* made = new std::array<std::string, kCollectives>;
        for (size_t i = 0; i < made->size(); ++i)
          (*made)[i] = std::string("backward of ") + name_of(static_cast<Collective>(i));
        return made;
      }();
  return names->at(static_cast<size_t>(collective)).c_str();
}

}  // namespace shardway
