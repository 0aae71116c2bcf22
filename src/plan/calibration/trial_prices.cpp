#include "plan/calibration/trial_prices.h"

#include <cmath>
#include <stdexcept>

#include "plan/price/price.h"

namespace shardway {
namespace {

// The layouts before and after a trial.
struct TrialLayouts {
  Layout from;
  Layout to;
};

TrialLayouts layouts_of(const Trial& trial, int64_t ranks) {
  const Mesh mesh({ranks});
  const int64_t elements = trial.bytes / kTrialItemBytes;
  const auto parts_of = [&](int64_t dim, int64_t count) {
    return shard(dim, sizes_of(trial.parts, count, ranks));
  };
  const auto lies = [&](const Dims& shape, const Placement& placement) {
    return Layout(shape, DType::f32, mesh, {placement});
  };
  switch (trial.kind) {
    case StepKind::all_gather:
      return {lies({elements}, parts_of(0, elements)), lies({elements}, replicate())};
    case StepKind::reduce_scatter:
      return {lies({elements}, partial()), lies({elements}, parts_of(0, elements))};
    case StepKind::all_reduce:
      return {lies({elements}, partial()), lies({elements}, replicate())};
    case StepKind::all_to_all:
      return {lies({ranks, elements}, shard(0)), lies({ranks, elements}, parts_of(1, elements))};
    case StepKind::exchange:
      return {lies({ranks * elements}, shard(0)), lies({ranks * elements}, parts_of(0, ranks * elements))};
    case StepKind::permute: {
      const Layout before = lies({ranks * elements}, shard(0));
      std::vector<int64_t> turned;
      for (int64_t rank = 0; rank < ranks; ++rank) turned.push_back((rank + 1) % ranks);
      return {before, before.with(Mesh({ranks}, turned, {}), {shard(0)})};
    }
    default:
      throw std::invalid_argument(std::string("calibration: a call of the kind ") + name_of(trial.kind) +
                                  " is not measured");
  }
}

// A trial as a step that the planner prices.
class TrialStep {
 public:
  TrialStep(const Trial& trial, int64_t ranks, const Topology& topology)
      : layouts_(layouts_of(trial, ranks)),
        is_all_reduce_(trial.kind == StepKind::all_reduce),
        network_(topology, layouts_.from.mesh(), layouts_.to.mesh()),
        senders_(layouts_.from, layouts_.to, layouts_.from.mesh()),
        receivers_(layouts_.from, layouts_.to, layouts_.to.mesh()),
        prices_(network_, kTrialItemBytes) {}

  double us() { return in_us(is_all_reduce_ ? of_all_reduce().cost : prices_.of_exchange(exchange()).cost); }

  // In an all_reduce every rank reads as much as it has, in shares.
  ReadLoad load() {
    if (!is_all_reduce_) return prices_.load_of(exchange());
    const auto bytes = static_cast<double>(layouts_.from.shape().front() * kTrialItemBytes);
    return {.most_bytes = bytes, .mean_bytes = bytes, .peers = of_all_reduce().most_received_from};
  }

 private:
  static constexpr DimMask kOnlyDim = 1;

  Price of_all_reduce() const {
    return prices_.of_all_reduce(senders_, senders_.index_of(layouts_.from), kOnlyDim);
  }

  StateExchange exchange() const {
    const bool combines = layouts_.from.placements().front().is_partial();
    return {.senders = senders_,
            .from = senders_.index_of(layouts_.from),
            .receivers = receivers_,
            .to = receivers_.index_of(layouts_.to),
            .resolved = combines ? kOnlyDim : 0};
  }

  TrialLayouts layouts_;
  bool is_all_reduce_;
  Network network_;
  StateSpace senders_;
  StateSpace receivers_;
  PriceList prices_;
};

ReadPattern pattern_of(StepKind kind) {
  switch (kind) {
    case StepKind::all_gather:
      return ReadPattern::gather;
    case StepKind::reduce_scatter:
      return ReadPattern::combine;
    case StepKind::all_reduce:
      return ReadPattern::combine_in_place;
    default:
      return ReadPattern::exchange;
  }
}

}  // namespace

ReadLoad load_of(const Trial& trial, int64_t ranks) { return TrialStep(trial, ranks, {}).load(); }

double us_by_table(const Trial& trial, const PriceTable& table) {
  const TablePrices prices(table, table.ranks);
  const ReadLoad load = load_of(trial, table.ranks);
  const ReadPattern pattern = pattern_of(trial.kind);
  return (trial.kind == StepKind::exchange ? prices.of_step(pattern, load) : prices.of(pattern, load)).us;
}

double us_by_figures(const Trial& trial, int64_t ranks, const Topology& topology) {
  return TrialStep(trial, ranks, topology).us();
}

double modelled_us(const Trial& trial, int64_t ranks, const Topology& topology) {
  const Mesh mesh({ranks});
  const auto table = TablePrices::between(topology, mesh, mesh);
  return table ? us_by_table(trial, table->table()) : us_by_figures(trial, ranks, topology);
}

Trial trial_of(const MeasuredCall& call) {
  return {.kind = call.kind, .bytes = call.bytes, .parts = call.parts, .is_held_out = call.is_held_out};
}

double held_out_error(const std::vector<MeasuredCall>& calls, int64_t ranks, const Topology& topology) {
  std::vector<double> held_out;
  std::vector<double> all;
  for (const MeasuredCall& call : calls) {
    const double error = std::abs(modelled_us(trial_of(call), ranks, topology) - call.us) / call.us;
    all.push_back(error);
    if (call.is_held_out) held_out.push_back(error);
  }
  return median_of(held_out.empty() ? all : held_out);
}

}  // namespace shardway
