// What the calls of a calibration took, and the topology whose prices fit them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/calibration/trials.h"
#include "shardway/topology.h"

namespace shardway {

// Which of a call's repetitions stands for all of them: so many are at most as slow. A price is that of a
// call that nothing gets in the way of: what else runs makes calls slower, by a slice of the scheduler, and
// never quicker. On gloo up to half of the small calls of 4 ranks on 2 cores took 3 ms in place of 0.5.
inline constexpr double kMedian = 0.5;
inline constexpr double kLowerQuartile = 0.25;

// What the repetitions of one trial took.
struct MeasuredCall {
  StepKind kind = StepKind::all_gather;
  int64_t bytes = 0;
  Portions parts = Portions::even;
  double us = 0;            // in a calibration the lower quartile, else the median
  double spread = 0;        // from the lower quartile to the upper one, as a share of `us`
  double retest_error = 0;  // by how much `us` of odd and of even rounds differ, as a share
  bool is_held_out = false;

  bool operator==(const MeasuredCall&) const = default;
};

// What a choice of shared memory saves, as a share of the time that calls take without it.
struct MeasuredChoice {
  double saves = 0;   // the median over repetitions; negative where the choice costs time
  double spread = 0;  // from the lower quartile to the upper one

  // Whether the choice is to be on. Nothing where it makes no more difference than a repetition does.
  std::optional<bool> is_on() const {
    return saves > spread ? std::optional(true) : saves < -spread ? std::optional(false) : std::nullopt;
  }

  bool operator==(const MeasuredChoice&) const = default;
};

struct MeasuredChoices {
  std::optional<MeasuredChoice> swap = {};
  std::optional<MeasuredChoice> hand_back = {};

  bool operator==(const MeasuredChoices&) const = default;
};

// A test-retest error above which figures say little.
inline constexpr double kMostRetestError = 0.25;

// Where, when and how the figures of a topology were measured, and how well they fit.
struct Calibration {
  std::string machine = {};
  std::string processor = {};
  int64_t cores = 1;  // that the ranks could use
  int64_t ranks = 2;
  std::string backend = {};
  std::string date = {};      // 2026-01-31T12:00:00Z
  bool is_complete = true;    // false: it was interrupted
  int64_t repetitions = 0;    // of the call that was repeated least
  double retest_error = 0;    // the median over all calls
  double held_out_error = 0;  // the median over the calls that the fit did not see
  MeasuredChoices choices = {};
  std::vector<MeasuredCall> calls = {};

  bool ranks_share_cores() const { return ranks > cores; }
  bool is_void() const { return retest_error > kMostRetestError; }
  bool operator==(const Calibration&) const = default;
};

struct MeasuredTopology {
  Topology topology = {};
  Calibration calibration = {};
};

// What the repetitions of all trials took, us[trial][repetition].
using TrialTimes = std::vector<std::vector<double>>;

// What follows from the repetitions of all trials. `about` has the machine, the ranks, their choices and
// whether it is complete. Nothing if a trial was repeated less than twice: sizes would be missing.
[[gnu::visibility("default")]] std::optional<MeasuredTopology> measured_topology(
    const std::vector<Trial>& trials, const TrialTimes& us, Calibration about);

// What follows from trials_of_choices: the quickest way against those that differ from it in one choice.
// Nothing of choices that were not tried.
MeasuredChoices measured_choices(const std::vector<Trial>& trials, const TrialTimes& us);

// Whether more rounds of all trials would add little.
[[gnu::visibility("default")]] bool is_known_well(const TrialTimes& us, int64_t rounds);

// A quantile, the median, and a call by its repetitions, turn by turn. They are at least two; those of one
// turn alone are compared with one another in place of rounds.
double quantile_of(std::vector<double> values, double share);
double median_of(std::vector<double> values);
[[gnu::visibility("default")]] MeasuredCall summary_of(const Trial& trial,
                                                       const std::vector<double>& repetitions,
                                                       double share = kMedian);

}  // namespace shardway
