#include "page/traffic.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace shardway::page {
namespace {

struct Load {
  int64_t sent = 0;
  int64_t received = 0;
  int64_t sent_to = 0;
  int64_t received_from = 0;
};

// By link level, in the order of docs/topology.md: mesh dims of the first mesh, of the second, none, hosts.
class Loads {
 public:
  Loads(const Step& step, int64_t rank, const Topology& topology)
      : step_(step), rank_(rank), topology_(topology) {}

  void send(int64_t peer, int64_t bytes) {
    if (bytes == 0) return;
    Load& load = loads_[level_to(peer)];
    load.sent += bytes;
    ++load.sent_to;
  }

  void receive(int64_t peer, int64_t bytes) {
    if (bytes == 0) return;
    Load& load = loads_[level_to(peer)];
    load.received += bytes;
    ++load.received_from;
  }

  double us() const {
    constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
    double us = 0;
    for (const auto& [level, load] : loads_) {
      const Link& link = link_at(level);
      us += static_cast<double>(std::max(load.sent_to, load.received_from)) * link.latency_us +
            static_cast<double>(std::max(load.sent, load.received)) / (link.gib_per_s * kGib) * 1e6;
    }
    return us;
  }

 private:
  static constexpr int64_t kNoMesh = 1000;
  static constexpr int64_t kHosts = 1001;

  int64_t level_to(int64_t peer) const {
    if (topology_.host_of(rank_) != topology_.host_of(peer)) return kHosts;
    const Mesh& first = step_.from.mesh();
    const Mesh& second = step_.to.mesh();
    if (const auto dim = outermost_difference(first, peer)) return *dim;
    if (const auto dim = outermost_difference(second, peer)) return first.ndim() + *dim;
    return kNoMesh;
  }

  std::optional<int64_t> outermost_difference(const Mesh& mesh, int64_t peer) const {
    const auto here = mesh.position_of(rank_);
    const auto there = mesh.position_of(peer);
    if (!here || !there) return std::nullopt;
    const auto a = mesh.coordinate_at(*here);
    const auto b = mesh.coordinate_at(*there);
    return std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin();
  }

  const Link& link_at(int64_t level) const {
    if (level == kHosts) return topology_.between_hosts;
    if (level == kNoMesh) return topology_.within_host;
    const Mesh& first = step_.from.mesh();
    return level < first.ndim() ? topology_.link_of(first, level)
                                : topology_.link_of(step_.to.mesh(), level - first.ndim());
  }

  const Step& step_;
  int64_t rank_;
  const Topology& topology_;
  std::map<int64_t, Load> loads_;
};

// Two phases: the addends of a share come in and its sum goes out; what a rank is to send it has received.
void add_all_reduce(const Step& step, int64_t rank, const Topology& topology, Traffic& traffic) {
  const Mesh group = step.from.mesh().submesh(step.mesh_dims, rank);
  const int64_t volume = step.from.box_at(*step.from.mesh().position_of(rank)).volume();
  const std::vector<int64_t> shares = chunk_sizes(volume, group.size());
  const int64_t item = item_bytes(step.from.dtype());
  const auto mine = static_cast<size_t>(*group.position_of(rank));
  Loads scatter(step, rank, topology);
  Loads gather(step, rank, topology);
  for (size_t i = 0; i < shares.size(); ++i) {
    if (i == mine) continue;
    const int64_t peer = group.ranks()[i];
    scatter.send(peer, shares[i] * item);
    scatter.receive(peer, shares[mine] * item);
    gather.send(peer, shares[mine] * item);
    gather.receive(peer, shares[i] * item);
    traffic.sent += (shares[i] + shares[mine]) * item;
  }
  traffic.received = traffic.sent;
  traffic.us = scatter.us() + gather.us();
}

void add_exchange(const Step& step, int64_t rank, const Route& route, const Topology& topology,
                  Traffic& traffic) {
  const int64_t item = item_bytes(step.from.dtype());
  std::map<int64_t, int64_t> sent;
  std::map<int64_t, int64_t> received;
  for (const Move& push : route.pushes) sent[push.peer] += push.mine.volume() * item;
  for (const Move& pull : route.pulls) received[pull.peer] += pull.mine.volume() * item;
  Loads loads(step, rank, topology);
  for (const auto& [peer, bytes] : sent) {
    if (peer == rank) continue;
    loads.send(peer, bytes);
    traffic.sent += bytes;
  }
  for (const auto& [peer, bytes] : received) {
    if (peer == rank) continue;
    loads.receive(peer, bytes);
    traffic.received += bytes;
  }
  traffic.us = loads.us();
}

}  // namespace

Traffic traffic_of(const Step& step, int64_t rank, const Topology& topology) {
  Traffic traffic;
  const Route route = redistribution_route(step.from, step.to, rank);
  if (const auto position = step.to.mesh().position_of(rank)) {
    const Box home = step.to.box_at(*position);
    for (const Move& pull : route.pulls) {
      if (pull.mine.volume() == 0) continue;
      Pull taken{.peer = pull.peer, .box = pull.mine};
      for (size_t dim = 0; dim < home.offset.size(); ++dim) taken.box.offset[dim] += home.offset[dim];
      traffic.pulls.push_back(std::move(taken));
    }
  }
  if (step.kind == StepKind::all_reduce) {
    add_all_reduce(step, rank, topology, traffic);
  } else {
    add_exchange(step, rank, route, topology, traffic);
  }
  if (traffic.us > 0) traffic.us += topology.base_us;
  return traffic;
}

}  // namespace shardway::page
