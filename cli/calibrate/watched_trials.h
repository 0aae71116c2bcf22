// Trials that a person watches and may interrupt.
#pragma once

#include <csignal>
#include <string>

#include "cli/calibrate/trials.h"
#include "cli/subcommand.h"

namespace shardway::cli {

inline constexpr ExitCode kInterrupted = static_cast<ExitCode>(128 + SIGINT);

// Measures with a line of progress, if standard error is a terminal, until the first SIGINT or SIGTERM at the
// latest. Throws Refusal if a rank fails.
TrialResults measure_until_interrupted(const std::vector<Trial>& trials, const TrialLimits& limits);

// The same for whatever measures. Its errors pass.
void watch_until_interrupted(const TrialLimits& limits,
                             const std::function<void(const TrialWatch&)>& measuring);

// 2026-01-31T12:00:00Z
std::string date_of_now();

}  // namespace shardway::cli
