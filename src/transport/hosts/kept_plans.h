// The plans of routes in two levels, made from what the ranks of a host tell one another.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "plan/hosts/two_levels.h"
#include "transport/common/transport.h"

namespace shardway {

// Every rank of a host knows only its own part of a route. So the ranks tell one another their parts, through
// the host's memory. A plan is kept and found again by the hashes of the parts: then they tell only these.
class KeptPlans {
 public:
  KeptPlans(HostMap hosts, int64_t rank) : hosts_(std::move(hosts)), rank_(rank) {}

  const HostMap& hosts() const { return hosts_; }

  // Collective among the ranks of the host, which communicate by `inside`. All of them have kept the same
  // plans.
  std::shared_ptr<const TwoLevels> plan(const ToldRoute& own, int64_t element_bytes, Transport& inside,
                                        const Subject& subject);

 private:
  HostMap hosts_;
  int64_t rank_;
  std::map<std::vector<uint64_t>, std::shared_ptr<const TwoLevels>> kept_;  // by hashes
};

}  // namespace shardway
