#include "plan/hosts/spread_broadcast.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "plan/hosts/carriers.h"

namespace shardway {
namespace {

Box run_of(int64_t begin, int64_t length) { return {.offset = {begin}, .extent = {length}}; }

// What each rank hands on, by rank. Hosts have equal parts, cut among their ranks; the root has its host's.
std::vector<Box> shares_of(int64_t elements, int64_t element_bytes, int64_t root, const HostMap& hosts) {
  std::vector<Box> shares(static_cast<size_t>(hosts.ranks()), run_of(0, 0));
  const std::vector<int64_t> of_hosts = chunk_sizes(elements, hosts.hosts());
  int64_t begin = 0;
  for (int64_t host = 0; host < hosts.hosts(); ++host) {
    const bool is_of_root = host == hosts.host_of(root);
    const std::vector<int64_t> owners =
        is_of_root ? std::vector{root} : carriers_of(hosts, host, elements * element_bytes, 2);
    const auto sizes = chunk_sizes(of_hosts[static_cast<size_t>(host)], static_cast<int64_t>(owners.size()));
    for (size_t i = 0; i < owners.size(); ++i) {
      shares[static_cast<size_t>(owners[i])] = run_of(begin, sizes[i]);
      begin += sizes[i];
    }
  }
  return shares;
}

}  // namespace

SpreadBroadcast spread_broadcast(int64_t elements, int64_t element_bytes, int64_t root, int64_t rank,
                                 const HostMap& hosts) {
  const std::vector<Box> shares = shares_of(elements, element_bytes, root, hosts);
  const auto is_with_root = [&](int64_t other) { return hosts.host_of(other) == hosts.host_of(root); };
  const auto add = [](Moves& moves, int64_t peer, const Box& box) {
    if (box.volume() > 0) moves.push_back({.peer = peer, .mine = box, .theirs = box});
  };
  const auto first_of = [&](int64_t other) {
    return is_with_root(other) ? Box::whole({elements}) : shares[static_cast<size_t>(other)];
  };
  const Route bare{
      .rank = rank, .size = hosts.ranks(), .input_shape = {elements}, .output_shape = {elements}};
  SpreadBroadcast routes{.shares = bare, .collection = bare};
  add(routes.shares.pulls, root, first_of(rank));
  for (int64_t other = 0; other < hosts.ranks(); ++other) {
    if (rank == root) add(routes.shares.pushes, other, first_of(other));
    if (other == rank) continue;
    if (!is_with_root(rank)) add(routes.collection.pulls, other, shares[static_cast<size_t>(other)]);
    if (!is_with_root(other)) add(routes.collection.pushes, other, shares[static_cast<size_t>(rank)]);
  }
  return routes;
}

}  // namespace shardway
