// What cannot be is refused on the rank, before anything is sent.
#include <functional>

#include "contract.h"
#include "require.h"

namespace shardway::testing {
namespace {

// A refusal is local: nothing was sent, so that the next call finds a clean group.
void require_refused(const Group& group, const Route& route, const at::Tensor& x, const at::Tensor& out,
                     const std::string& text) {
  std::string said = "nothing";
  try {
    execute(route, x, out, group);
  } catch (const c10::ValueError& error) {
    said = error.what_without_backtrace();
  }
  require(said.find(text) != std::string::npos, "expected a refusal with '" + text + "', got: " + said,
          group);
}

void bad_routes_are_refused_on_the_rank(const Group& group) {
  const Route good = route_of(reversed_rows(group, 2), group.rank());
  const auto refuse = [&](const std::function<void(Route&)>& spoil, const std::string& text) {
    Route bad = good;
    spoil(bad);
    require_refused(group, bad, at::zeros({2, 2}), at::zeros({2, 2}), text);
  };
  refuse([&](Route& r) { r.pulls[0].peer = group.size(); }, "names no rank of");
  refuse([](Route& r) { r.pulls[1].mine.offset[0] = 2; }, "outside its tensor");
  refuse([](Route& r) { r.pushes[1].mine.offset[0] = -1; }, "outside its tensor");
  refuse([](Route& r) { r.pushes[0].mine = {{0}, {2}}; }, "another number of dims");
  refuse([](Route& r) { r.pushes[0].theirs.extent = {2, 2}; }, "different extent");
  refuse([](Route& r) { r.divisor = 0; }, "divisor 0");
  refuse([](Route& r) { r.op = Op::avg; }, "avg");
  refuse([&](Route& r) { r.rank = group.size(); }, "is not one of");
  refuse([](Route& r) { r.size += 1; }, "but the group has");
  require_exchange(group, reversed_rows(group, 2));
}

void moves_of_a_rank_to_itself_must_match(const Group& group) {
  Exchange exchange = alike(group, {2, 2}, {2, 2});
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    exchange.transfers.push_back(
        {.from = rank, .source = Box::whole({2, 2}), .to = rank, .target = Box::whole({2, 2})});
  }
  Route bad = route_of(exchange, group.rank());
  bad.pulls[0].theirs.offset = {5, 0};
  require_refused(group, bad, at::zeros({2, 2}), at::zeros({2, 2}), "itself");
  bad.pulls[0].theirs.offset = {kUnknownOffset, 0};
  require_refused(group, bad, at::zeros({2, 2}), at::zeros({2, 2}), "itself");
  bad = route_of(exchange, group.rank());
  bad.pushes.clear();
  require_refused(group, bad, at::zeros({2, 2}), at::zeros({2, 2}), "itself");
  require_exchange(group, exchange);
}

void tensors_that_do_not_fit_the_route_are_refused(const Group& group) {
  const Exchange exchange = reversed_rows(group, 2);
  const Route route = route_of(exchange, group.rank());
  const at::Tensor fits = at::zeros({2, 2});
  require_refused(group, route, at::zeros({2, 3}), fits, "[2, 3]");
  require_refused(group, route, fits, at::zeros({3, 2}), "[3, 2]");
  require_refused(group, route, at::zeros({4}), fits, "[4]");
  require_refused(group, route, fits, at::zeros({2, 2}, at::kDouble), "dtype");
  require_refused(group, route, fits, at::zeros({2, 2}, at::TensorOptions().device(at::kMeta)),
                  "but out is on meta");
  require_refused(group, route, fits, fits, "overlap");
  const at::Tensor shared = at::zeros({3, 2});
  require_refused(group, route, shared.narrow(0, 0, 2), shared.narrow(0, 1, 2), "overlap");
  require_refused(group, route, fits, at::zeros({1}).expand({2, 2}), "overlaps itself");
  require_exchange(group, exchange);
}

void integers_are_not_divided(const Group& group) {
  Exchange exchange = reversed_rows(group, 2);
  exchange.divisor = 2;
  require_refused(group, route_of(exchange, group.rank()), at::zeros({2, 2}, at::kLong),
                  at::zeros({2, 2}, at::kLong), "int64");
  require_exchange(group, reversed_rows(group, 2));
}

}  // namespace

std::vector<Check> checks_of_refusals() {
  return {
      {"BadRoutesAreRefusedOnTheRank", bad_routes_are_refused_on_the_rank},
      {"MovesOfARankToItselfMustMatch", moves_of_a_rank_to_itself_must_match},
      {"TensorsThatDoNotFitTheRouteAreRefused", tensors_that_do_not_fit_the_route_are_refused},
      {"IntegersAreNotDivided", integers_are_not_divided},
  };
}

}  // namespace shardway::testing
