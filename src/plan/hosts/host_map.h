// Which ranks of a group share a host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardway {

// Hosts are numbered in the order of their first ranks. Ranks of a host need not follow one another.
class HostMap {
 public:
  // One label per rank; ranks with equal labels share a host.
  explicit HostMap(const std::vector<int64_t>& labels);

  int64_t ranks() const { return static_cast<int64_t>(host_of_.size()); }
  int64_t hosts() const { return static_cast<int64_t>(ranks_of_.size()); }
  int64_t host_of(int64_t rank) const { return host_of_[static_cast<size_t>(rank)]; }

  // The place of a rank among those of its host.
  int64_t place_of(int64_t rank) const { return place_of_[static_cast<size_t>(rank)]; }

  // The ranks of other hosts, ascending, that send the rank at this place of a host what goes once to each
  // host.
  std::vector<int64_t> carried_by(int64_t host, int64_t place) const;

  // Ascending.
  const std::vector<int64_t>& ranks_of(int64_t host) const { return ranks_of_[static_cast<size_t>(host)]; }

 private:
  std::vector<int64_t> host_of_;
  std::vector<int64_t> place_of_;
  std::vector<std::vector<int64_t>> ranks_of_;
};

}  // namespace shardway
