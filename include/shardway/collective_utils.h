// The cost functions of PyTorch's DTensor collective utilities, by their names, in two versions: `seed_004`
// is the text that shardway began from, `torch_2_13` is torch 2.13.
#pragma once

#include <cstdint>
#include <vector>

#include "shardway/plan.h"

namespace shardway {
namespace [[gnu::visibility("default")]] collective_utils {

// The number of ranks, the GiB/s and the latency in microseconds of each mesh dim.
struct MeshTopoInfo {
  std::vector<int64_t> mesh_dim_devices = {};
  std::vector<double> mesh_dim_bandwidth = {};
  std::vector<double> mesh_dim_latency = {};

  // The assumed figures: from the innermost dim outward, a dim is between hosts once the product of ranks
  // exceeds `devices_per_host` (0: one host).
  static MeshTopoInfo build_from_mesh(const Mesh& mesh, int64_t devices_per_host = 0);

  // The same rule with a topology's figures. A link that is given for a mesh dim, by name or number, takes
  // precedence.
  static MeshTopoInfo build_from_mesh(const Mesh& mesh, const Topology& topology);
};

int64_t spec_to_bytes(const Layout& layout);  // of the whole tensor

double allgather_cost(double bytes_gb, const MeshTopoInfo& topo, int64_t mesh_dim);
double reduce_scatter_cost(double bytes_gb, const MeshTopoInfo& topo, int64_t mesh_dim);
double allreduce_cost(double bytes_gb, const MeshTopoInfo& topo, int64_t mesh_dim,
                      Rules rules = Rules::torch_2_13);

double redistribute_cost(const Layout& from, const Layout& to, const MeshTopoInfo& topo,
                         Rules rules = Rules::torch_2_13);

// The layouts that DTensor's default planner passes through, including both ends.
std::vector<Layout> greedy_layouts(const Layout& from, const Layout& to);

// The layouts of the cheapest path among DTensor's steps at its prices.
std::vector<Layout> min_cost_layouts(const Layout& from, const Layout& to, const MeshTopoInfo& topo);

// The price of one of DTensor's steps, whose layouts differ in one mesh dim.
double one_step_cost(const Layout& from, const Layout& to, const MeshTopoInfo& topo);

}  // namespace collective_utils
}  // namespace shardway
