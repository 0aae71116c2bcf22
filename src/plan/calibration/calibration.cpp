#include "plan/calibration/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "plan/calibration/fit.h"
#include "plan/calibration/trial_prices.h"

namespace shardway {
namespace {

double distance_of_quartiles(const std::vector<double>& values) {
  return quantile_of(values, 0.75) - quantile_of(values, kLowerQuartile);
}

// The logarithm of what calls take in groups of one way, repetition by repetition: the mean over all calls.
std::vector<double> logs_of(const MemoryChoices& way, const std::vector<Trial>& trials,
                            const TrialTimes& us) {
  std::vector<double> sums;
  double calls = 0;
  for (size_t i = 0; i < trials.size(); ++i) {
    if (trials[i].choices != way) continue;
    if (calls++ == 0) sums.assign(us[i].size(), 0);
    sums.resize(std::min(sums.size(), us[i].size()));
    for (size_t k = 0; k < sums.size(); ++k) sums[k] += std::log(us[i][k]);
  }
  for (double& sum : sums) sum /= calls;
  return sums;
}

// Repetitions of two ways were made one soon after the other, and so are compared.
std::optional<MeasuredChoice> saved_by(const std::vector<double>& on, const std::vector<double>& off) {
  std::vector<double> saved;
  for (size_t k = 0; k < std::min(on.size(), off.size()); ++k) saved.push_back(1 - std::exp(on[k] - off[k]));
  if (saved.size() < 2) return std::nullopt;
  return MeasuredChoice{.saves = median_of(saved), .spread = distance_of_quartiles(saved)};
}

}  // namespace

double quantile_of(std::vector<double> values, double share) {
  if (values.empty()) throw std::invalid_argument("calibration: there is no median of nothing");
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

double median_of(std::vector<double> values) { return quantile_of(std::move(values), kMedian); }

MeasuredCall summary_of(const Trial& trial, const std::vector<double>& repetitions, double share) {
  if (repetitions.size() < 2)
    throw std::invalid_argument("calibration: a call needs at least two repetitions");
  std::array<std::vector<double>, 2> halves;
  const size_t part = repetitions.size() > kRepetitionsInATurn ? kRepetitionsInATurn : 1;
  for (size_t i = 0; i < repetitions.size(); ++i) halves[i / part % 2].push_back(repetitions[i]);
  const double even = quantile_of(halves[0], share);
  const double odd = quantile_of(halves[1], share);
  const double us = quantile_of(repetitions, share);
  return {.kind = trial.kind,
          .bytes = trial.bytes,
          .parts = trial.parts,
          .us = us,
          .spread = distance_of_quartiles(repetitions) / us,
          .retest_error = 2 * std::abs(even - odd) / (even + odd),
          .is_held_out = trial.is_held_out};
}

bool is_known_well(const TrialTimes& us, int64_t rounds) {
  constexpr int64_t kLeastRounds = 12;
  constexpr double kKnownWell = 0.03;  // a median test-retest error at which more rounds add little
  if (rounds < kLeastRounds) return false;
  std::vector<double> errors;
  errors.reserve(us.size());
  for (const std::vector<double>& repetitions : us)
    errors.push_back(summary_of({}, repetitions).retest_error);
  return median_of(errors) <= kKnownWell;
}

MeasuredChoices measured_choices(const std::vector<Trial>& trials, const TrialTimes& us) {
  std::optional<MemoryChoices> best;
  double least = 0;
  for (const bool swap : {false, true}) {
    for (const bool hand_back : {false, true}) {
      const MemoryChoices way{.swap = swap, .hand_back = hand_back};
      const std::vector<double> logs = logs_of(way, trials, us);
      if (logs.empty() || (best && median_of(logs) >= least)) continue;
      best = way;
      least = median_of(logs);
    }
  }
  if (!best) return {};
  const auto saved = [&](bool MemoryChoices::*choice) {
    MemoryChoices on = *best;
    MemoryChoices off = *best;
    on.*choice = true;
    off.*choice = false;
    return saved_by(logs_of(on, trials, us), logs_of(off, trials, us));
  };
  return {.swap = saved(&MemoryChoices::swap), .hand_back = saved(&MemoryChoices::hand_back)};
}

std::optional<MeasuredTopology> measured_topology(const std::vector<Trial>& trials, const TrialTimes& us,
                                                  Calibration about) {
  std::vector<double> retest_errors;
  about.repetitions = INT64_MAX;
  for (size_t i = 0; i < trials.size(); ++i) {
    if (us[i].size() < 2) return std::nullopt;
    const MeasuredCall call = summary_of(trials[i], us[i], kLowerQuartile);
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
