#include "plan/price/network.h"

#include <algorithm>

namespace shardway {
namespace {

constexpr size_t kMostPairsInTable = 256 * 256;

std::vector<int64_t> hosts_of(const Topology& topology, const Mesh& mesh) {
  std::vector<int64_t> hosts;
  hosts.reserve(mesh.ranks().size());
  for (const int64_t rank : mesh.ranks()) hosts.push_back(topology.host_of(rank));
  return hosts;
}

Link best_of(const std::vector<Link>& links) {
  Link best = links.front();
  for (const Link& link : links) {
    best.latency_us = std::min(best.latency_us, link.latency_us);
    best.gib_per_s = std::max(best.gib_per_s, link.gib_per_s);
  }
  return best;
}

// The outermost dim in which two positions differ.
size_t outermost_difference(const Mesh& mesh, int64_t a, int64_t b) {
  int64_t block = mesh.size();
  for (size_t dim = 0; dim < mesh.shape().size(); ++dim) {
    block /= mesh.shape()[dim];
    if (a / block != b / block) return dim;
  }
  return 0;
}

}  // namespace

Network::Network(const Topology& topology, const Mesh& senders, const Mesh& receivers)
    : sender_mesh_(senders),
      receiver_mesh_(receivers),
      is_one_mesh_(senders == receivers),
      base_us_(topology.base_us),
      copy_us_per_byte_(us_per_byte(topology.copy_gib_per_s)),
      reduce_us_per_byte_(us_per_byte(topology.reduce_gib_per_s)),
      senders_(static_cast<size_t>(senders.size())),
      sender_hosts_(hosts_of(topology, senders)),
      receiver_hosts_(hosts_of(topology, receivers)) {
  for (int64_t dim = 0; dim < senders.ndim(); ++dim) links_.push_back(topology.link_of(senders, dim));
  if (!is_one_mesh_) {
    for (int64_t dim = 0; dim < receivers.ndim(); ++dim) links_.push_back(topology.link_of(receivers, dim));
  }
  links_.push_back(topology.within_host);
  links_.push_back(topology.between_hosts);
  number_ranks();
  find_quickest();
  const auto count = static_cast<size_t>(receivers.size());
  if (senders_ * count <= kMostPairsInTable) {
    std::vector<uint8_t> levels(senders_ * count);
    for (size_t r = 0; r < count; ++r) {
      for (size_t p = 0; p < senders_; ++p) levels[r * senders_ + p] = static_cast<uint8_t>(find_level(p, r));
    }
    levels_ = std::move(levels);
  }
  if (is_one_mesh_) find_rings();
}

// Links that no two ranks use do not count: a mesh dim of one rank, a border without a second host.
void Network::find_quickest() {
  std::vector<Link> inside;
  for (int64_t dim = 0; dim < sender_mesh_.ndim(); ++dim) {
    if (sender_mesh_.size(dim) > 1) inside.push_back(links_[static_cast<size_t>(dim)]);
  }
  if (!is_one_mesh_ || inside.empty()) inside.assign(links_.begin(), links_.end() - 1);
  quickest_inside_ = best_of(inside);
  const auto is_first_host = [this](int64_t host) { return host == sender_hosts_.front(); };
  const bool is_one_host = std::all_of(sender_hosts_.begin(), sender_hosts_.end(), is_first_host) &&
                           std::all_of(receiver_hosts_.begin(), receiver_hosts_.end(), is_first_host);
  if (!is_one_host) inside.push_back(links_.back());
  quickest_ = best_of(inside);
}

void Network::number_ranks() {
  ranks_ = senders_;
  if (is_one_mesh_) return;
  for (size_t p = 0; p < senders_; ++p) sender_slots_.push_back(p);
  for (const int64_t rank : receiver_mesh_.ranks()) {
    const auto own = sender_mesh_.position_of(rank);
    own_senders_.push_back(own.value_or(-1));
    receiver_slots_.push_back(own ? static_cast<size_t>(*own) : ranks_++);
  }
}

size_t Network::find_level(size_t sender, size_t receiver) const {
  if (sender_hosts_[sender] != receiver_hosts_[receiver]) return links_.size() - 1;
  if (is_one_mesh_) {
    return outermost_difference(sender_mesh_, static_cast<int64_t>(sender), static_cast<int64_t>(receiver));
  }
  if (own_senders_[receiver] >= 0) {
    return outermost_difference(sender_mesh_, static_cast<int64_t>(sender), own_senders_[receiver]);
  }
  if (const auto place = receiver_mesh_.position_of(sender_mesh_.ranks()[sender])) {
    return static_cast<size_t>(sender_mesh_.ndim()) +
           outermost_difference(receiver_mesh_, *place, static_cast<int64_t>(receiver));
  }
  return links_.size() - 2;
}

// Hosts lie in blocks if each has the same number of consecutive positions, and these are a whole number of
// coordinates of one mesh dim.
void Network::find_rings() {
  const auto size = static_cast<int64_t>(senders_);
  int64_t host_block = 1;
  while (host_block < size && sender_hosts_[static_cast<size_t>(host_block)] == sender_hosts_[0])
    ++host_block;
  for (int64_t p = 0; p < size; ++p) {
    const int64_t first = p - p % host_block;
    if (sender_hosts_[static_cast<size_t>(p)] != sender_hosts_[static_cast<size_t>(first)]) return;
  }
  std::vector<int64_t> hosts;
  for (int64_t p = 0; p < size; p += host_block) hosts.push_back(sender_hosts_[static_cast<size_t>(p)]);
  std::sort(hosts.begin(), hosts.end());
  if (std::adjacent_find(hosts.begin(), hosts.end()) != hosts.end()) return;

  std::vector<Ring> rings;
  int64_t block = size;
  for (int64_t dim = 0; dim < sender_mesh_.ndim(); ++dim) {
    const int64_t inner = block / sender_mesh_.size(dim);
    if (block > host_block) {
      rings.push_back({.block = block, .level = links_.size() - 1});
      if (host_block > inner) {
        if (host_block % inner != 0 || block % host_block != 0) return;
        rings.push_back({.block = host_block, .level = static_cast<size_t>(dim)});
      }
    } else {
      rings.push_back({.block = block, .level = static_cast<size_t>(dim)});
    }
    block = inner;
  }
  rings_ = std::move(rings);
  host_block_ = host_block < size ? host_block : 0;
}

}  // namespace shardway
