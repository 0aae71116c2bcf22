// Options that all programs that measure have.
#pragma once

#include <string>

#include "cli/calibrate/trials.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace shardway::cli {

inline constexpr int64_t kMostTrialRanks = 256;

struct TrialOptions {
  std::string ranks = {};
  std::string seconds = {};
  bool takes_whole_time = false;
};

// Adds -n, --seconds and --whole-time. Returns -n.
CLI::Option* add_trial_options(CLI::App& options, TrialOptions& written, int64_t usual_seconds);

// A number of ranks that can be measured, from 2 on.
int64_t read_trial_ranks(const TrialOptions& written);

// Without the ranks. The error names the option.
TrialLimits read_limits(const TrialOptions& written, int64_t usual_seconds);

}  // namespace shardway::cli
