#include "shardway/collective_utils.h"

#include <algorithm>
#include <stdexcept>

#include "plan/geometry/number_text.h"
#include "plan/search/dtensor_steps.h"

namespace shardway::collective_utils {
namespace {

constexpr double kBaseUs = 6.6;
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

// Latency of every hop, and the bytes that pass in all of them.
double ring_cost(double bytes_gb, const MeshTopoInfo& topo, int64_t mesh_dim, double hops) {
  const auto dim = static_cast<size_t>(mesh_dim);
  const auto devices = static_cast<double>(topo.mesh_dim_devices[dim]);
  const double seconds = bytes_gb * hops / devices / topo.mesh_dim_bandwidth[dim];
  return kBaseUs + hops * topo.mesh_dim_latency[dim] + seconds * 1e6;
}

double hops_once(const MeshTopoInfo& topo, int64_t mesh_dim) {
  return static_cast<double>(topo.mesh_dim_devices[static_cast<size_t>(mesh_dim)] - 1);
}

double local_gb(const Layout& layout) {
  double shards = 1;
  for (size_t m = 0; m < layout.placements().size(); ++m) {
    if (layout.placements()[m].is_shard()) shards *= static_cast<double>(layout.mesh().shape()[m]);
  }
  return static_cast<double>(spec_to_bytes(layout)) / shards / kGib;
}

bool is_replicated(const Layout& layout) {
  return std::all_of(layout.placements().begin(), layout.placements().end(),
                     [](const Placement& placement) { return placement.is_replicate(); });
}

// What one mesh dim costs on its own; `bytes_gb` becomes what a rank holds afterwards.
double transition_cost(const Placement& before, const Placement& after, const MeshTopoInfo& topo,
                       int64_t mesh_dim, double& bytes_gb, Rules rules) {
  if (before == after) return 0;
  const auto devices = static_cast<double>(topo.mesh_dim_devices[static_cast<size_t>(mesh_dim)]);
  if (before.is_shard() && after.is_replicate()) {
    bytes_gb *= devices;
    return allgather_cost(bytes_gb, topo, mesh_dim);
  }
  if (before.is_shard() && after.is_shard()) return allgather_cost(bytes_gb, topo, mesh_dim) + 1.0;
  if (before.is_partial() && after.is_replicate()) return allreduce_cost(bytes_gb, topo, mesh_dim, rules);
  if (before.is_partial() && after.is_shard()) {
    const double cost = reduce_scatter_cost(bytes_gb, topo, mesh_dim);
    bytes_gb /= devices;
    return cost;
  }
  if (before.is_shard() && after.is_partial()) return kImpossible;
  if (rules == Rules::seed_004) return 0;
  if (before.is_partial() && after.is_partial()) return kImpossible;
  if (before.is_replicate() && after.is_shard()) bytes_gb /= devices;
  return 0;
}

// From some placements to others, one mesh dim after the other.
double transitions_cost(const Placements& before, const Placements& after, const MeshTopoInfo& topo,
                        double& bytes_gb, Rules rules) {
  double cost = 0;
  for (size_t m = 0; m < before.size(); ++m) {
    cost += transition_cost(before[m], after[m], topo, static_cast<int64_t>(m), bytes_gb, rules);
  }
  return cost;
}

double direct_cost(const Layout& from, const Layout& to, const MeshTopoInfo& topo, Rules rules) {
  double bytes_gb = local_gb(from);
  return transitions_cost(from.placements(), to.placements(), topo, bytes_gb, rules);
}

std::vector<Placements> torch_placements(const Layout& from, const Layout& to, const MeshTopoInfo& topo) {
  if (from.has_default_order() && to.has_default_order()) return greedy_placements(from, to);
  std::vector<Placements> passed;
  for (const Layout& layout : min_cost_layouts(from, to, topo)) passed.push_back(layout.placements());
  return passed;
}

double torch_cost(const Layout& from, const Layout& to, const MeshTopoInfo& topo) {
  const std::vector<Placements> passed = torch_placements(from, to, topo);
  double cost = 0;
  double bytes_gb = local_gb(from);
  for (size_t i = 0; i + 1 < passed.size(); ++i) {
    cost += transitions_cost(passed[i], passed[i + 1], topo, bytes_gb, Rules::torch_2_13);
  }
  return cost;
}

}  // namespace

MeshTopoInfo MeshTopoInfo::build_from_mesh(const Mesh& mesh, int64_t devices_per_host) {
  return build_from_mesh(mesh, Topology{.ranks_per_host = devices_per_host});
}

MeshTopoInfo MeshTopoInfo::build_from_mesh(const Mesh& mesh, const Topology& topology) {
  MeshTopoInfo info;
  info.mesh_dim_devices = mesh.shape();
  info.mesh_dim_bandwidth.resize(mesh.shape().size());
  info.mesh_dim_latency.resize(mesh.shape().size());
  int64_t devices = 1;
  for (size_t dim = mesh.shape().size(); dim-- > 0;) {
    devices *= mesh.shape()[dim];
    const bool is_between_hosts = topology.ranks_per_host > 0 && devices > topology.ranks_per_host;
    const Link& own = topology.link_of(mesh, static_cast<int64_t>(dim));
    const Link& link = is_between_hosts && own == topology.within_host ? topology.between_hosts : own;
    info.mesh_dim_bandwidth[dim] = link.gib_per_s;
    info.mesh_dim_latency[dim] = link.latency_us;
  }
  return info;
}

int64_t spec_to_bytes(const Layout& layout) {
  return item_bytes(layout.dtype()) * Box::whole(layout.shape()).volume();
}

double allgather_cost(double bytes_gb, const MeshTopoInfo& topo, int64_t mesh_dim) {
  return ring_cost(bytes_gb, topo, mesh_dim, hops_once(topo, mesh_dim));
}

double reduce_scatter_cost(double bytes_gb, const MeshTopoInfo& topo, int64_t mesh_dim) {
  return ring_cost(bytes_gb, topo, mesh_dim, hops_once(topo, mesh_dim));
}

double allreduce_cost(double bytes_gb, const MeshTopoInfo& topo, int64_t mesh_dim, Rules rules) {
  const double hops = 2 * hops_once(topo, mesh_dim);
  return ring_cost(bytes_gb, topo, mesh_dim, rules == Rules::seed_004 ? hops + 1 : hops);
}

double redistribute_cost(const Layout& from, const Layout& to, const MeshTopoInfo& topo, Rules rules) {
  if (!(from.mesh() == to.mesh())) return kImpossible;
  if (is_replicated(from)) return 0;
  switch (rules) {
    case Rules::seed_004:
      return direct_cost(from, to, topo, Rules::seed_004);
    case Rules::torch_2_13:
      return from == to ? 0 : torch_cost(from, to, topo);
    case Rules::shardway:
      break;
  }
  throw std::invalid_argument("redistribute_cost: these are the rules seed_004 and torch_2_13");
}

double one_step_cost(const Layout& from, const Layout& to, const MeshTopoInfo& topo) {
  return direct_cost(from, to, topo, Rules::torch_2_13);
}

}  // namespace shardway::collective_utils
