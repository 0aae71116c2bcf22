#include "plan/hosts/host_map.h"

#include <map>

namespace shardway {

HostMap::HostMap(const std::vector<int64_t>& labels) {
  std::map<int64_t, int64_t> host_of_label;
  for (const int64_t label : labels) {
    const auto host = host_of_label.try_emplace(label, hosts()).first->second;
    if (host == hosts()) ranks_of_.emplace_back();
    auto& of_host = ranks_of_[static_cast<size_t>(host)];
    place_of_.push_back(static_cast<int64_t>(of_host.size()));
    of_host.push_back(ranks());
    host_of_.push_back(host);
  }
}

std::vector<int64_t> HostMap::carried_by(int64_t host, int64_t place) const {
  const auto mates = static_cast<int64_t>(ranks_of(host).size());
  std::vector<int64_t> carried;
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    if (host_of(rank) != host && place_of(rank) % mates == place) carried.push_back(rank);
  }
  return carried;
}

}  // namespace shardway
