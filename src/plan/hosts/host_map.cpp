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

}  // namespace shardway
