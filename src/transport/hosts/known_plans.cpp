#include "transport/hosts/known_plans.h"

#include <vector>

#include "plan/hosts/spread_broadcast.h"

namespace shardway {
namespace {

// When there are more, all are forgotten.
constexpr size_t kMostKept = 1024;

// A rank's part of a call.
struct RoutesOfCall {
  Box first_part = {};
  Route first = {};
  Route second = {};
};

RoutesOfCall routes_of(const KnownCall& call, int64_t rank, const HostMap& hosts) {
  if (call.pattern == Pattern::broadcast) {
    SpreadBroadcast routes =
        spread_broadcast(call.run.elements, call.run.element_bytes, call.root, rank, hosts);
    return {.first_part = Box::whole({call.run.elements}),
            .first = std::move(routes.shares),
            .second = std::move(routes.collection)};
  }
  AllReduceRoutes routes = all_reduce_routes(call.run, rank, hosts);
  routes.combination.op = call.op;
  routes.combination.divisor = call.divisor;
  return {.first_part = std::move(routes.landing),
          .first = std::move(routes.combination),
          .second = std::move(routes.collection)};
}

ToldRoute told(const Route& route) {
  return {.route = route, .has_contiguous_input = true, .has_contiguous_output = true};
}

}  // namespace

std::shared_ptr<const PlannedCall> KnownPlans::planned(const KnownCall& call) {
  if (const auto found = kept_.find(call); found != kept_.end()) return found->second;
  if (kept_.size() == kMostKept) kept_.clear();
  return kept_[call] = std::make_shared<const PlannedCall>(made(call));
}

PlannedCall KnownPlans::made(const KnownCall& call) const {
  PlannedCall made;
  std::vector<ToldRoute> first;
  std::vector<ToldRoute> second;
  for (const int64_t mate : hosts_.ranks_of(hosts_.host_of(rank_))) {
    RoutesOfCall routes = routes_of(call, mate, hosts_);
    first.push_back(told(routes.first));
    second.push_back(told(routes.second));
    if (mate != rank_) continue;
    made.first_part = std::move(routes.first_part);
    made.first.route = std::move(routes.first);
    made.second.route = std::move(routes.second);
  }
  made.first.plan = two_levels_of(hosts_, rank_, first, call.run.element_bytes);
  made.second.plan = two_levels_of(hosts_, rank_, second, call.run.element_bytes);
  return made;
}

}  // namespace shardway
