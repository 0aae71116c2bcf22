#include "plan/price/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>

#include "plan/price/network.h"
#include "plan/price/table_prices.h"

namespace shardway {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

// What a rank does in a call, in units of the figures that price it: a base, peers met, and bytes that it
// moves over links, copies and combines.
enum Figure : size_t { base, latency, link, copy, reduce, figures };
using Figures = std::array<double, figures>;

Figures work_of(StepKind kind, int64_t bytes, int64_t ranks) {
  const auto whole = static_cast<double>(bytes);
  const auto peers = static_cast<double>(ranks - 1);
  const double part = whole / static_cast<double>(ranks);
  switch (kind) {
    case StepKind::all_gather:
    case StepKind::all_to_all:
      return {1, peers, peers * part, part, 0};
    case StepKind::reduce_scatter:
      return {1, peers, peers * part, part, whole};
    case StepKind::all_reduce:
      return {1, 2 * peers, 2 * peers * part, 0, whole};
    case StepKind::permute:
      return {1, 1, whole, 0, 0};
    default:
      throw std::invalid_argument(std::string("calibration: a call of the kind ") + name_of(kind) +
                                  " is not measured");
  }
}

double us_of(const Figures& work, const Figures& prices) {
  double us = 0;
  for (size_t i = 0; i < figures; ++i) us += work[i] * prices[i];
  return us;
}

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

// What even parts have in common with others, by the rank that has the other part.
struct CommonParts {
  double own = 0;
  double of_peers = 0;
  int64_t peers = 0;
};

std::vector<CommonParts> common_parts(const std::vector<int64_t>& before, const std::vector<int64_t>& after) {
  std::vector<CommonParts> all;
  int64_t begin = 0;
  for (size_t rank = 0; rank < after.size(); ++rank) {
    CommonParts parts;
    int64_t there = 0;
    for (size_t peer = 0; peer < before.size(); ++peer) {
      const int64_t common = std::min(begin + after[rank], there + before[peer]) - std::max(begin, there);
      there += before[peer];
      if (common <= 0) continue;
      (peer == rank ? parts.own : parts.of_peers) += static_cast<double>(common);
      if (peer != rank) ++parts.peers;
    }
    all.push_back(parts);
    begin += after[rank];
  }
  return all;
}

ReadLoad load_of_exchange(const Trial& trial, int64_t ranks) {
  const int64_t whole = trial.bytes * ranks;
  ReadLoad load;
  for (const CommonParts& parts :
       common_parts(sizes_of(Portions::even, whole, ranks), sizes_of(trial.parts, whole, ranks))) {
    load.add(parts.of_peers + parts.own, parts.own, 1 / static_cast<double>(ranks));
    load.peers = std::max(load.peers, parts.peers);
  }
  return load;
}

// Every rank of a gather reads all of it. Of the other calls a rank reads by its part.
ReadLoad load_of(const Trial& trial, int64_t ranks) {
  if (trial.kind == StepKind::exchange) return load_of_exchange(trial, ranks);
  const auto bytes = static_cast<double>(trial.bytes);
  ReadLoad load{.most_bytes = bytes, .mean_bytes = bytes, .peers = ranks - 1};
  if (trial.kind == StepKind::permute) {
    load.peers = 1;
  } else {
    load.mean_kept_bytes = bytes / static_cast<double>(ranks);
  }
  if (trial.parts != Portions::even && trial.kind != StepKind::all_gather) {
    const std::vector<int64_t> sizes = sizes_of(trial.parts, trial.bytes * ranks, ranks);
    load.most_bytes = static_cast<double>(*std::max_element(sizes.begin(), sizes.end()));
  }
  return load;
}

// An exchange is measured as a redistribution, the others as collectives.
double us_by(const TablePrices& prices, const Trial& trial, int64_t ranks) {
  const ReadLoad load = load_of(trial, ranks);
  const ReadPattern pattern = pattern_of(trial.kind);
  return (trial.kind == StepKind::exchange ? prices.of_step(pattern, load) : prices.of(pattern, load)).us;
}

Trial trial_of(const MeasuredCall& call) {
  return {.kind = call.kind, .bytes = call.bytes, .parts = call.parts, .is_held_out = call.is_held_out};
}

// By how much a table misprices the calls of a kind with uneven parts.
double error_of_uneven(const std::vector<MeasuredCall>& calls, StepKind kind, const PriceTable& table) {
  const TablePrices prices(table, table.ranks);
  double error = 0;
  for (const MeasuredCall& call : calls) {
    if (call.kind != kind || call.parts == Portions::even || call.is_held_out) continue;
    error += std::abs(std::log(us_by(prices, trial_of(call), table.ranks) / call.us));
  }
  return error;
}

// Sets the share of a kind to where its calls with uneven parts are priced best. Tenths are what the data
// tell.
void choose_busiest_share(const std::vector<MeasuredCall>& calls, StepKind kind, PriceTable& table) {
  double& share = table.curves[name_of(kind)].busiest_share;
  double least = INFINITY;
  double best = 0;
  for (int tenths = 10; tenths >= 0; --tenths) {
    share = tenths / 10.0;
    const double error = error_of_uneven(calls, kind, table);
    if (error >= least) continue;
    least = error;
    best = share;
  }
  share = best;
}

// Neighbours that fall with the bytes become their geometric mean: what falls is noise, and by it a plan
// would seem cheaper if it moved more.
void make_rise(std::vector<PriceCurve::Point>& points) {
  struct Level {
    double sum_of_logs = 0;
    size_t points = 0;

    double mean() const { return sum_of_logs / static_cast<double>(points); }
  };
  std::vector<Level> levels;
  for (const PriceCurve::Point& point : points) {
    levels.push_back({.sum_of_logs = std::log(point.us), .points = 1});
    while (levels.size() > 1 && levels[levels.size() - 2].mean() > levels.back().mean()) {
      const Level last = levels.back();
      levels.pop_back();
      levels.back().sum_of_logs += last.sum_of_logs;
      levels.back().points += last.points;
    }
  }
  size_t next = 0;
  for (const Level& level : levels) {
    const bool is_as_measured = level.points == 1;
    for (size_t i = 0; i < level.points; ++i, ++next) {
      if (!is_as_measured) points[next].us = std::exp(level.mean());
    }
  }
}

// Exchanges to leaning parts, by the bytes that count in an all_to_all. None if they were not measured.
void add_kept_exchanges(const std::vector<MeasuredCall>& calls, PriceTable& table) {
  PriceCurve curve{.busiest_share = table.curves.at(name_of(StepKind::all_to_all)).busiest_share};
  for (const MeasuredCall& call : calls) {
    if (call.kind != StepKind::exchange || call.parts != Portions::leaning || call.is_held_out) continue;
    const ReadLoad load = load_of(trial_of(call), table.ranks);
    const double counted =
        curve.busiest_share * load.most_bytes + (1 - curve.busiest_share) * load.mean_bytes;
    curve.points.push_back({.bytes = counted, .us = call.us});
    table.kept_share = load.mean_kept_bytes / load.mean_bytes;
  }
  if (curve.points.empty()) return;
  make_rise(curve.points);
  table.curves[name_of(StepKind::exchange)] = std::move(curve);
}

// Where a step costs little but its meeting: of the two smallest exchanges in which much moves.
double step_us_of(const std::vector<MeasuredCall>& calls, const PriceTable& table) {
  constexpr size_t kSmallest = 2;
  const TablePrices prices(table, table.ranks);
  std::vector<double> more;
  for (const MeasuredCall& call : calls) {
    if (call.kind != StepKind::exchange || call.parts != Portions::rising || call.is_held_out) continue;
    const ReadLoad load = load_of(trial_of(call), table.ranks);
    const double without = prices.of_exchange(load, 0).us;
    const double part =
        prices.of_exchange(load, 1).us - without;  // of the price, which is like a collective's
    more.push_back((call.us - without) / part);
    if (more.size() == kSmallest) break;
  }
  return more.size() < kSmallest ? 0 : std::max(0.0, median_of(std::move(more)));
}

double gib_per_s(double us_per_byte) { return us_per_byte > 0 ? 1e6 / (us_per_byte * kGib) : 0; }

Figures prices_of(const Topology& topology) {
  return {topology.base_us, topology.within_host.latency_us, us_per_byte(topology.within_host.gib_per_s),
          us_per_byte(topology.copy_gib_per_s), us_per_byte(topology.reduce_gib_per_s)};
}

// One equation of the fit, divided by the time that was measured: errors are relative.
Figures relative_work_of(const MeasuredCall& call, int64_t ranks) {
  Figures work = work_of(call.kind, call.bytes, ranks);
  for (double& share : work) share /= call.us;
  return work;
}

// Least squares in the figures whose bits are set in `used`; the others are 0.
class NormalEquations {
 public:
  explicit NormalEquations(const std::vector<Figures>& rows) {
    for (const Figures& row : rows) {
      for (size_t i = 0; i < figures; ++i) {
        right_[i] += row[i];
        for (size_t j = 0; j < figures; ++j) left_[i][j] += row[i] * row[j];
      }
    }
  }

  // Nothing where the rows do not tell these figures apart.
  std::optional<Figures> solved(unsigned used) const {
    std::vector<size_t> at;
    for (size_t i = 0; i < figures; ++i) {
      if ((used >> i & 1U) != 0) at.push_back(i);
    }
    const size_t count = at.size();
    std::vector<std::vector<double>> rows(count, std::vector<double>(count + 1));
    for (size_t i = 0; i < count; ++i) {  // scaled to a diagonal of ones
      for (size_t j = 0; j < count; ++j) rows[i][j] = left_[at[i]][at[j]] / (scale(at[i]) * scale(at[j]));
      rows[i][count] = right_[at[i]] / scale(at[i]);
    }
    if (!eliminate(rows)) return std::nullopt;
    Figures found{};
    for (size_t i = 0; i < count; ++i) found[at[i]] = rows[i][count] / rows[i][i] / scale(at[i]);
    return found;
  }

 private:
  double scale(size_t i) const { return left_[i][i] > 0 ? std::sqrt(left_[i][i]) : 1; }

  static bool eliminate(std::vector<std::vector<double>>& rows) {
    constexpr double kSmallestPivot = 1e-9;
    for (size_t i = 0; i < rows.size(); ++i) {
      size_t best = i;
      for (size_t k = i + 1; k < rows.size(); ++k) {
        if (std::abs(rows[k][i]) > std::abs(rows[best][i])) best = k;
      }
      std::swap(rows[i], rows[best]);
      if (std::abs(rows[i][i]) < kSmallestPivot) return false;
      for (size_t k = 0; k < rows.size(); ++k) {
        if (k == i) continue;
        const double factor = rows[k][i] / rows[i][i];
        for (size_t j = i; j <= rows.size(); ++j) rows[k][j] -= factor * rows[i][j];
      }
    }
    return true;
  }

  std::array<Figures, figures> left_{};
  Figures right_{};
};

double squared_error(const std::vector<Figures>& rows, const Figures& prices) {
  double error = 0;
  for (const Figures& row : rows) error += std::pow(us_of(row, prices) - 1, 2);
  return error;
}

// There are few figures, so every choice of those that are not 0 is tried. A link must cost something.
Figures least_squares(const std::vector<Figures>& rows) {
  const NormalEquations equations(rows);
  std::optional<Figures> best;
  double least = 0;
  for (unsigned used = 0; used < 1U << figures; ++used) {
    if ((used >> link & 1U) == 0) continue;
    const auto found = equations.solved(used);
    if (!found || (*found)[link] <= 0) continue;
    if (std::any_of(found->begin(), found->end(), [](double price) { return price < 0; })) continue;
    const double error = squared_error(rows, *found);
    if (best && error >= least) continue;
    best = found;
    least = error;
  }
  if (!best) throw std::invalid_argument("calibration: no figures fit the calls that were measured");
  return *best;
}

int64_t weight_of(Portions parts, int64_t rank, int64_t ranks) {
  switch (parts) {
    case Portions::even:
      return 1;
    case Portions::rising:
      return rank;
    case Portions::leaning:
      return 2 * rank < ranks ? 3 : 2;
    default:
      return rank % 2 == 0 ? 3 : 1;
  }
}

double quartile_of(std::vector<double> values, double share) {
  const auto at = static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

}  // namespace

double median_of(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("calibration: there is no median of nothing");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

MeasuredCall summary_of(const Trial& trial, const std::vector<double>& repetitions) {
  if (repetitions.size() < 2)
    throw std::invalid_argument("calibration: a call needs at least two repetitions");
  std::array<std::vector<double>, 2> halves;
  for (size_t i = 0; i < repetitions.size(); ++i) halves[i % 2].push_back(repetitions[i]);
  const double even = median_of(halves[0]);
  const double odd = median_of(halves[1]);
  const double us = median_of(repetitions);
  return {.kind = trial.kind,
          .bytes = trial.bytes,
          .parts = trial.parts,
          .us = us,
          .spread = (quartile_of(repetitions, 0.75) - quartile_of(repetitions, 0.25)) / us,
          .retest_error = 2 * std::abs(even - odd) / (even + odd),
          .is_held_out = trial.is_held_out};
}

const char* name_of(Portions parts) {
  switch (parts) {
    case Portions::even:
      return "even";
    case Portions::rising:
      return "rising";
    case Portions::leaning:
      return "leaning";
    default:
      return "alternating";
  }
}

std::vector<int64_t> sizes_of(Portions parts, int64_t count, int64_t ranks) {
  std::vector<int64_t> weights;
  for (int64_t rank = 0; rank < ranks; ++rank) weights.push_back(weight_of(parts, rank, ranks));
  const int64_t whole = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  std::vector<int64_t> sizes;
  int64_t weight = 0;
  int64_t given = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    weight += weights[static_cast<size_t>(rank)];
    const int64_t until = count * weight / whole;
    sizes.push_back(until - given);
    given = until;
  }
  return sizes;
}

double us_by_figures(StepKind kind, int64_t bytes, int64_t ranks, const Topology& topology) {
  return us_of(work_of(kind, bytes, ranks), prices_of(topology));
}

double modelled_us(const Trial& trial, int64_t ranks, const Topology& topology) {
  if (!topology.tables) return us_by_figures(trial.kind, trial.bytes, ranks, topology);
  const Mesh mesh({ranks});
  return us_by(*TablePrices::between(topology, mesh, mesh), trial, ranks);
}

PriceTable fitted_table(const std::vector<MeasuredCall>& calls, int64_t ranks) {
  PriceTable table{.ranks = ranks};
  for (const StepKind kind : kMeasuredKinds) {
    PriceCurve& curve = table.curves[name_of(kind)];
    for (const MeasuredCall& call : calls) {
      if (call.kind == kind && call.parts == Portions::even && !call.is_held_out)
        curve.points.push_back({.bytes = static_cast<double>(call.bytes), .us = call.us});
    }
    if (curve.points.empty())
      throw std::invalid_argument(std::string("calibration: there is no call of the kind ") + name_of(kind));
    make_rise(curve.points);
  }
  for (const StepKind kind : kMeasuredKinds) choose_busiest_share(calls, kind, table);
  add_kept_exchanges(calls, table);
  table.step_us = step_us_of(calls, table);
  return table;
}

Topology fitted_topology(const std::vector<MeasuredCall>& calls, int64_t ranks) {
  std::vector<Figures> rows;
  for (const MeasuredCall& call : calls) {
    if (!call.is_held_out && call.parts == Portions::even) rows.push_back(relative_work_of(call, ranks));
  }
  if (rows.size() < figures)
    throw std::invalid_argument("calibration: " + std::to_string(rows.size()) + " calls are too few to fit " +
                                std::to_string(figures) + " figures");
  const Figures prices = least_squares(rows);
  return {.base_us = prices[base],
          .within_host = {.latency_us = prices[latency], .gib_per_s = gib_per_s(prices[link])},
          .copy_gib_per_s = gib_per_s(prices[copy]),
          .reduce_gib_per_s = gib_per_s(prices[reduce]),
          .source = "measured"};
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

std::vector<Trial> trials_between(int64_t least_bytes, int64_t most_bytes) {
  constexpr StepKind kWithParts[] = {StepKind::all_gather, StepKind::reduce_scatter, StepKind::all_to_all,
                                     StepKind::exchange};
  std::vector<Trial> trials;
  bool is_second = false;
  for (int64_t bytes = least_bytes; bytes <= most_bytes; bytes *= 2, is_second = !is_second) {
    for (const StepKind kind : kMeasuredKinds) {
      trials.push_back({.kind = kind, .bytes = bytes});
      if (is_second && 3 * bytes / 2 <= most_bytes)
        trials.push_back({.kind = kind, .bytes = 3 * bytes / 2, .is_held_out = true});
    }
    const Portions parts = is_second ? Portions::alternating : Portions::rising;
    for (const StepKind kind : kWithParts)
      trials.push_back({.kind = kind, .bytes = bytes, .parts = parts, .is_held_out = is_second});
    trials.push_back({.kind = StepKind::exchange, .bytes = bytes, .parts = Portions::leaning});
  }
  return trials;
}

std::optional<MeasuredTopology> measured_topology(const std::vector<Trial>& trials,
                                                  const std::vector<std::vector<double>>& us,
                                                  Calibration about) {
  std::vector<double> retest_errors;
  about.repetitions = INT64_MAX;
  for (size_t i = 0; i < trials.size(); ++i) {
    if (us[i].size() < 2) return std::nullopt;
    const MeasuredCall call = summary_of(trials[i], us[i]);
    retest_errors.push_back(call.retest_error);
    about.repetitions = std::min(about.repetitions, static_cast<int64_t>(us[i].size()));
    about.calls.push_back(call);
  }
  MeasuredTopology measured{.topology = fitted_topology(about.calls, about.ranks)};
  measured.topology.tables =
      std::make_shared<const PriceTables>(PriceTables{fitted_table(about.calls, about.ranks)});
  about.retest_error = median_of(retest_errors);
  about.held_out_error = held_out_error(about.calls, about.ranks, measured.topology);
  measured.calibration = std::move(about);
  return measured;
}

}  // namespace shardway
