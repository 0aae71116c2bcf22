#include "cli/plan_call.h"

#include <stdexcept>

#include "cli/option_value.h"

namespace shardway::cli {
namespace {

constexpr Sweep kWholeSweep = {.dim = 0, .first = 1, .last = 1 << 20};

Layout layout_of(const Layout& whole, const Mesh& mesh, const std::string& option, const std::string& text) {
  return value_of(option, text, [&] {
    OrderedPlacements read = read_placements(text, whole.ndim());
    if (static_cast<int64_t>(read.placements.size()) != mesh.ndim()) {
      throw std::invalid_argument("has " + std::to_string(read.placements.size()) +
                                  (read.placements.size() == 1 ? " placement" : " placements") +
                                  "; the mesh " + to_string(mesh) + " needs " + std::to_string(mesh.ndim()) +
                                  ", one per mesh dim");
    }
    return whole.with(mesh, std::move(read.placements), std::move(read.order));
  });
}

Topology links_of(const PlanCall& call) {
  if (!call.topology.empty())
    return value_of("--topology", call.topology, [&] { return read_topology(call.topology); });
  if (call.devices_per_host.empty()) return default_topology();
  return {.ranks_per_host = value_of("--devices-per-host", call.devices_per_host, [&] {
            return read_count(call.devices_per_host, "the ranks on a host, such as 8");
          })};
}

// With --hosts, CPU ranks on these hosts; the figures stay.
Topology topology_of(const PlanCall& call) {
  Topology topology = links_of(call);
  if (call.hosts.empty()) return topology;
  return value_of("--hosts", call.hosts, [&] {
    topology.ranks_per_host = 0;
    topology.host_of_rank = read_hosts(call.hosts);
    topology.two_levels = true;
    validate(topology);
    return topology;
  });
}

void check_hosts(const PlanCall& call, const Topology& topology, const Layout& layout) {
  if (call.hosts.empty()) {
    value_of("--topology", call.topology, [&] {
      for (const int64_t rank : layout.mesh().ranks()) topology.host_of(rank);
      return true;
    });
    return;
  }
  const auto ranks = static_cast<int64_t>(topology.host_of_rank.size());
  for (const int64_t rank : layout.mesh().ranks()) {
    if (rank < ranks) continue;
    throw std::invalid_argument("--hosts " + call.hosts + ": has " + std::to_string(ranks) +
                                " ranks; the mesh " + to_string(layout.mesh()) + " has a rank " +
                                std::to_string(rank));
  }
}

void check_rules(const PlanCall& call, const PlanQuestion& question) {
  const Rules rules = question.options.rules;
  if (rules == Rules::shardway) return;
  const std::string because = "--rules " + call.rules + " ";
  if (!call.max_memory.empty()) throw std::invalid_argument(because + "knows no --max-memory");
  if (call.wants_relabel) throw std::invalid_argument(because + "knows no --relabel");
  if (!(question.from.mesh() == question.to.mesh())) {
    throw std::invalid_argument(because + "has no way between meshes; leave --to-mesh out");
  }
  if (rules != Rules::seed_004) return;
  if (!call.html.empty() || call.wants_sweep) {
    throw std::invalid_argument(because + "has a price and no plan; leave --html and --sweep out");
  }
}

Relabel relabel_of(const PlanCall& call, const PlanQuestion& question) {
  if (call.relabel.empty()) return {};
  return value_of("--relabel", call.relabel, [&] {
    const std::vector<int64_t> ranks = read_rank_list(call.relabel);
    const Mesh line({static_cast<int64_t>(ranks.size())}, ranks, {});
    if (line.size() < question.to.mesh().size())
      throw std::invalid_argument("has " + std::to_string(line.size()) + " ranks; the mesh " +
                                  to_string(question.to.mesh()) + " needs " +
                                  std::to_string(question.to.mesh().size()));
    check_hosts(call, *question.options.topology, question.to.with(line, {replicate()}));
    return Relabel{ranks};
  });
}

}  // namespace

PlanQuestion read_question(const PlanCall& call) {
  const Mesh mesh = value_of("--mesh", call.mesh, [&] { return read_mesh(call.mesh); });
  const Mesh to_mesh = call.to_mesh.empty()
                           ? mesh
                           : value_of("--to-mesh", call.to_mesh, [&] { return read_mesh(call.to_mesh); });
  const DType dtype = value_of("--dtype", call.dtype, [&] { return read_dtype(call.dtype); });
  const Layout whole = value_of(
      "--shape", call.shape, [&] { return Layout(read_shape(call.shape), dtype, Mesh({1}), {replicate()}); });
  PlanQuestion question{.from = layout_of(whole, mesh, "--from", call.from),
                        .to = layout_of(whole, to_mesh, "--to", call.to)};
  question.options.topology = topology_of(call);
  check_hosts(call, *question.options.topology, question.from);
  check_hosts(call, *question.options.topology, question.to);
  question.options.rules = value_of("--rules", call.rules, [&] { return rules_from_name(call.rules); });
  if (!call.max_memory.empty()) {
    question.options.max_bytes =
        value_of("--max-memory", call.max_memory, [&] { return read_bytes(call.max_memory); });
  }
  if (call.wants_relabel) question.options.relabel = relabel_of(call, question);
  if (call.wants_sweep) {
    question.sweep = call.sweep.empty()
                         ? kWholeSweep
                         : value_of("--sweep", call.sweep, [&] { return read_sweep(call.sweep); });
  }
  check_rules(call, question);
  return question;
}

}  // namespace shardway::cli
