#include "ops/mesh/group_topology.h"

#include <algorithm>

#include "ops/call/arguments.h"
#include "ops/mesh/place.h"
#include "plan/hosts/host_map.h"
#include "shardway/redistribute.h"
#include "transport/common/knows_hosts.h"

namespace shardway {
namespace {

// A price in two levels makes the plans of all ranks: 20 ms among 64, half a second among 256
// (docs/topology.md).
constexpr int64_t kMostPricedRanks = 64;

const HostMap* hosts_of(const MeshTensor& tensor) {
  const bool all_have_one = tensor.layout().mesh().size() == tensor.group().size();
  return named("redistribute", [&] {
    return hosts_for(tensor.group().transport(), all_have_one ? tensor.local() : at::Tensor());
  });
}

// By global number. A rank outside the group is a host of its own.
std::vector<int64_t> host_of_number(const HostMap& hosts, const std::vector<int64_t>& numbers) {
  std::vector<int64_t> host_of(static_cast<size_t>(*std::max_element(numbers.begin(), numbers.end())) + 1,
                               -1);
  for (size_t rank = 0; rank < numbers.size(); ++rank)
    host_of[static_cast<size_t>(numbers[rank])] = hosts.host_of(static_cast<int64_t>(rank));
  int64_t next = hosts.hosts();
  for (int64_t& host : host_of) {
    if (host < 0) host = next++;
  }
  return host_of;
}

}  // namespace

std::optional<Topology> topology_for(const MeshTensor& tensor, const std::optional<Topology>& given) {
  if (given || !tensor.group().distributed()) return given;
  const HostMap* hosts = hosts_of(tensor);
  if (hosts == nullptr) return std::nullopt;
  Topology topology = default_topology();
  topology.host_of_rank = host_of_number(*hosts, tensor.place()->ranks.numbers());
  topology.ranks_per_host = 0;
  topology.two_levels = hosts->ranks() <= kMostPricedRanks;
  if (topology.two_levels) topology.dims.clear();
  return topology;
}

std::shared_ptr<const Plan> plan(const MeshTensor& tensor, const Layout& to, const PlanOptions& options) {
  PlanOptions with_hosts = options;
  std::shared_ptr<const Plan> found;
  const std::string problem = problem_in([&] {
    with_hosts.topology = topology_for(tensor, options.topology);
    found = plan(tensor.layout(), to, with_hosts);
  });
  TORCH_CHECK_VALUE(problem.empty(), problem);
  return found;
}

}  // namespace shardway
