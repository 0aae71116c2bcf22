#include "plan/calibration/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "plan/calibration/trial_prices.h"

namespace shardway {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

// What a rank does in a call, in units of the figures that price it: a base, peers met, and bytes that it
// moves over links, copies and combines.
enum Figure : size_t { base, latency, link, copy, reduce, figures };
using Figures = std::array<double, figures>;

double gib_per_s(double us_per_byte) { return us_per_byte > 0 ? 1e6 / (us_per_byte * kGib) : 0; }

Topology topology_of(const Figures& prices) {
  return {.base_us = prices[base],
          .within_host = {.latency_us = prices[latency],
                          .gib_per_s = prices[link] > 0 ? gib_per_s(prices[link]) : INFINITY},
          .copy_gib_per_s = gib_per_s(prices[copy]),
          .reduce_gib_per_s = gib_per_s(prices[reduce])};
}

// Prices are linear in the figures: what a call costs where one of them is 1 and the others are nothing.
Figures work_of(const MeasuredCall& call, int64_t ranks) {
  constexpr double kUnit = 1e-3;  // us a byte: so that large calls cost no more than can be counted
  Figures work{};
  for (size_t i = 0; i < figures; ++i) {
    Figures unit{};
    unit[i] = i == base || i == latency ? 1 : kUnit;
    work[i] = us_by_figures(trial_of(call), ranks, topology_of(unit)) / unit[i];
  }
  return work;
}

double us_of(const Figures& work, const Figures& prices) {
  double us = 0;
  for (size_t i = 0; i < figures; ++i) us += work[i] * prices[i];
  return us;
}

// By how much a table misprices the calls of a kind with uneven parts.
double error_of_uneven(const std::vector<MeasuredCall>& calls, StepKind kind, const PriceTable& table) {
  double error = 0;
  for (const MeasuredCall& call : calls) {
    if (call.kind != kind || call.parts == Portions::even || call.is_held_out) continue;
    error += std::abs(std::log(us_by_table(trial_of(call), table) / call.us));
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

// One equation of the fit, divided by the time that was measured: errors are relative.
Figures relative_work_of(const MeasuredCall& call, int64_t ranks) {
  Figures work = work_of(call, ranks);
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

}  // namespace

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
  Topology topology = topology_of(least_squares(rows));
  topology.source = "measured";
  return topology;
}

}  // namespace shardway
