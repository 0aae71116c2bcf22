// Calls that local ranks make and time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/calibration/calibration.h"

namespace shardway::cli {

struct TrialLimits {
  int64_t ranks = 2;
  std::chrono::seconds time = std::chrono::seconds(30);  // one round of all trials is made in any case
  bool takes_whole_time = false;                         // else it ends when the spread is known
  std::string tuning = {};                               // SHARDWAY_TUNING of the ranks; empty: as it is here
};

// How far the ranks are, for whoever watches.
struct TrialProgress {
  int64_t rounds = 0;    // of all trials
  double of_round = 0;   // of the round that is being made, from 0 to 1
  double elapsed_s = 0;  // of the time that is allowed
};

// Called several times a second; false stops the trials.
using TrialWatch = std::function<bool(const TrialProgress&)>;

struct TrialResults {
  TrialTimes us = {};
  bool is_complete = true;  // false: it was stopped
};

// Starts the ranks, and measures until the time is over, the spread of the trials is known, or `watch`
// returns false. Throws std::runtime_error if a rank fails; the others are ended then.
TrialResults measure(const std::vector<Trial>& trials, const TrialLimits& limits, const TrialWatch& watch);

}  // namespace shardway::cli
