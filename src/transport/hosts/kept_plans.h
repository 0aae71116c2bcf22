// The plans of routes in two levels, made from what the ranks of a host tell one another.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "plan/hosts/two_levels.h"
#include "transport/common/transport.h"

namespace shardway {

// A rank's part of one route, as it tells it.
struct ToldPart {
  ToldRoute told = {};
  int64_t element_bytes = 0;
};

// Every rank of a host knows only its own part of a route. So the ranks tell one another their parts, through
// the host's memory: those of a whole list at once. The plans of a list are kept and found again by the
// hashes of the parts: then they tell only these.
class KeptPlans {
 public:
  KeptPlans(HostMap hosts, int64_t rank) : hosts_(std::move(hosts)), rank_(rank) {}

  const HostMap& hosts() const { return hosts_; }

  // A plan for each part. Collective among the ranks of the host, which communicate by `inside`. All of them
  // have kept the same plans.
  std::shared_ptr<const std::vector<TwoLevels>> plans(const std::vector<ToldPart>& own, Transport& inside,
                                                      const Subject& subject);

 private:
  std::vector<TwoLevels> made(const std::vector<ToldPart>& own, const std::vector<at::Tensor>& told) const;
  int64_t mate_at(size_t place) const { return hosts_.ranks_of(hosts_.host_of(rank_))[place]; }

  HostMap hosts_;
  int64_t rank_;
  std::map<std::vector<uint64_t>, std::shared_ptr<const std::vector<TwoLevels>>> kept_;  // by hashes
};

}  // namespace shardway
