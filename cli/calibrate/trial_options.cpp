#include "cli/calibrate/trial_options.h"

#include <CLI/CLI.hpp>

#include "cli/notation.h"
#include "cli/option_value.h"

namespace shardway::cli {

CLI::Option* add_trial_options(CLI::App& options, TrialOptions& written, int64_t usual_seconds) {
  CLI::Option* ranks =
      options.add_option("-n,--ranks", written.ranks, "how many ranks to start; at least 2")->type_name("N");
  options
      .add_option("--seconds", written.seconds,
                  "the longest time to measure, after a first round of all\ncalls; " +
                      std::to_string(usual_seconds) + " when left out")
      ->type_name("SECONDS");
  options.add_flag("--whole-time", written.takes_whole_time,
                   "do not stop before that, though repetitions agree");
  return ranks;
}

int64_t read_trial_ranks(const TrialOptions& written) {
  return value_of("--ranks", written.ranks, [&] {
    const int64_t ranks = read_count(written.ranks, "the number of ranks, such as 4");
    if (ranks == 1) throw std::invalid_argument("one rank has nobody to send to; give at least 2");
    if (ranks > kMostTrialRanks)
      throw std::invalid_argument("is more than " + std::to_string(kMostTrialRanks) +
                                  ", the most that are started to measure");
    return ranks;
  });
}

TrialLimits read_limits(const TrialOptions& written, int64_t usual_seconds) {
  const auto seconds = [&] { return read_count(written.seconds, "a number of seconds, such as 60"); };
  return {.time = std::chrono::seconds(
              written.seconds.empty() ? usual_seconds : value_of("--seconds", written.seconds, seconds)),
          .takes_whole_time = written.takes_whole_time};
}

}  // namespace shardway::cli
