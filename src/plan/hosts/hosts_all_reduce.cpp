#include "plan/hosts/hosts_all_reduce.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "plan/hosts/carriers.h"

namespace shardway {
namespace {

// Sums that are wider than the result make one exchange send more than two. Up to so many bytes of a result,
// a round of messages takes longer than that.
constexpr int64_t kWidenedUpToBytes = 128 << 10;

void share_among(const std::vector<int64_t>& ranks, int64_t elements, std::vector<Box>& shares) {
  const std::vector<int64_t> sizes = chunk_sizes(elements, static_cast<int64_t>(ranks.size()));
  int64_t begin = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    shares[static_cast<size_t>(ranks[i])] = {.offset = {begin}, .extent = {sizes[i]}};
    begin += sizes[i];
  }
}

// By rank: what it combines.
std::vector<Box> shares_of(const ReducedRun& run, const HostMap& hosts, bool is_by_host) {
  std::vector<Box> shares(static_cast<size_t>(hosts.ranks()), {.offset = {0}, .extent = {0}});
  const int64_t bytes = run.elements * run.sum_bytes;
  if (is_by_host) {
    for (int64_t host = 0; host < hosts.hosts(); ++host)
      share_among(carriers_of(hosts, host, bytes, 1), run.elements, shares);
    return shares;
  }
  std::vector<int64_t> all;
  for (int64_t host = 0; host < hosts.hosts(); ++host) {
    const std::vector<int64_t> carriers = carriers_of(hosts, host, bytes, 2);
    all.insert(all.end(), carriers.begin(), carriers.end());
  }
  std::sort(all.begin(), all.end());
  share_among(all, run.elements, shares);
  return shares;
}

void add(Moves& moves, int64_t peer, const Box& mine, const Box& theirs) {
  if (mine.volume() > 0) moves.push_back({.peer = peer, .mine = mine, .theirs = theirs});
}

}  // namespace

bool exchanges_sums_once(const ReducedRun& run, const HostMap& hosts) {
  return hosts.hosts() == 2 &&
         (run.sum_bytes == run.element_bytes || run.elements * run.element_bytes <= kWidenedUpToBytes);
}

AllReduceRoutes all_reduce_routes(const ReducedRun& run, int64_t rank, const HostMap& hosts) {
  const bool is_by_host = exchanges_sums_once(run, hosts);
  const std::vector<Box> shares = shares_of(run, hosts, is_by_host);
  const Box& own = shares[static_cast<size_t>(rank)];
  const Box landed = Box::whole(own.extent);
  AllReduceRoutes routes{.combination = {.rank = rank,
                                         .size = hosts.ranks(),
                                         .input_shape = {run.elements},
                                         .output_shape = {own.volume()}},
                         .collection = {.rank = rank,
                                        .size = hosts.ranks(),
                                        .input_shape = {own.volume()},
                                        .output_shape = {run.elements}},
                         .landing = own};
  for (int64_t peer = 0; peer < hosts.ranks(); ++peer) {
    const Box& share = shares[static_cast<size_t>(peer)];
    const Box theirs = Box::whole(share.extent);
    add(routes.combination.pulls, peer, landed, own);
    add(routes.combination.pushes, peer, share, theirs);
    if (peer == rank || (is_by_host && hosts.host_of(peer) != hosts.host_of(rank))) continue;
    add(routes.collection.pulls, peer, share, theirs);
    add(routes.collection.pushes, peer, landed, own);
  }
  return routes;
}

}  // namespace shardway
