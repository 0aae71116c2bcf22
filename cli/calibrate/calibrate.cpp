// shardway calibrate
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "cli/calibrate/watched_trials.h"
#include "cli/notation.h"
#include "cli/option_value.h"
#include "cli/subcommand.h"
#include "cli/whole_file.h"
#include "plan/text/calibration_file.h"
#include "shm/memory/machine.h"

namespace shardway::cli {
namespace {

constexpr const char* kLesson =
    "Starts ranks on this machine, times gathers, reductions, exchanges and messages of many sizes between\n"
    "them, through shared memory, and fits the figures by which plans are priced. Every second size is kept\n"
    "out of the fit: how far the prices are from what those took is the error that is printed. Calls are\n"
    "repeated until odd and even repetitions agree, or the time is over.\n"
    "\n"
    "The figures hold for this machine and this number of ranks; a plan for others says so. Let nothing "
    "else\n"
    "run meanwhile. Ctrl-C ends it and keeps what was measured, unless that is less than one round: in "
    "FILE,\n"
    "or in FILE.partial if there is a FILE already.\n"
    "\n"
    "Examples:\n"
    "  shardway calibrate -n 4 -o topology.json\n"
    "  shardway plan --topology topology.json --mesh 4 --shape 4096x4096 --from S0 --to R\n"
    "  export SHARDWAY_TOPOLOGY=$PWD/topology.json\n"
    "\n"
    "Exit codes: 0; 1 when a rank fails, or nothing was measured; 2 for a mistake in the call; 130 when it\n"
    "was interrupted.";

constexpr int64_t kLeastBytes = 1024;
constexpr int64_t kUsualMostBytes = 16 << 20;
constexpr int64_t kLeastMostBytes = 8 * kLeastBytes;  // four sizes, two of them for the fit
constexpr int64_t kMostMostBytes = int64_t{1} << 30;
constexpr int64_t kUsualSeconds = 30;

struct WrittenCalibrate {
  std::string ranks = {};
  std::string output = {};
  std::string seconds = {};
  std::string most = {};
  bool takes_whole_time = false;
};

int64_t read_most(const std::string& written) {
  const int64_t bytes = read_bytes(written);
  if (bytes < kLeastMostBytes || bytes > kMostMostBytes)
    throw std::invalid_argument("the largest size is from 8KiB to 1GiB");
  return bytes;
}

// An interrupted measurement does not take the place of another.
std::string place_for(const std::string& output, bool is_complete) {
  std::error_code ignored;
  return is_complete || !std::filesystem::exists(output, ignored) ? output : output + ".partial";
}

ExitCode answer(const WrittenCalibrate& written) {
  const auto seconds = [&] { return read_count(written.seconds, "a number of seconds, such as 60"); };
  const TrialLimits limits{
      .ranks = value_of("--ranks", written.ranks, [&] { return read_trial_ranks(written.ranks); }),
      .time = std::chrono::seconds(written.seconds.empty() ? kUsualSeconds
                                                           : value_of("--seconds", written.seconds, seconds)),
      .takes_whole_time = written.takes_whole_time};
  const auto most = [&] { return read_most(written.most); };
  const std::vector<Trial> trials = trials_between(
      kLeastBytes, written.most.empty() ? kUsualMostBytes : value_of("--most", written.most, most));
  refuse_unwritable(written.output);
  const TrialResults results = measure_until_interrupted(trials, limits);
  const std::optional<MeasuredTopology> found = measured_topology(trials, results.us,
                                                                  {.machine = shm::name_of_machine(),
                                                                   .processor = shm::model_of_processor(),
                                                                   .cores = shm::usable_cores(),
                                                                   .ranks = limits.ranks,
                                                                   .backend = "shared memory",
                                                                   .date = date_of_now(),
                                                                   .is_complete = results.is_complete});
  if (!found) throw Refusal("it was interrupted before every call was made: nothing is written");
  const std::string place = place_for(written.output, results.is_complete);
  write_whole(place, to_json(found->topology, found->calibration) + "\n");
  print(report_of(*found) + place +
        (results.is_complete ? " is written\n" : " has what was measured until the interruption\n"));
  return results.is_complete ? ExitCode::yes : kInterrupted;
}

}  // namespace

Answer add_calibrate(CLI::App& options) {
  auto written = std::make_shared<WrittenCalibrate>();
  options.set_help_flag("-h,--help", "print this help");
  options.add_option("-n,--ranks", written->ranks, "how many ranks to start; at least 2")
      ->type_name("N")
      ->required();
  options.add_option("-o,--output", written->output, "the topology file to write")
      ->type_name("FILE")
      ->required();
  options
      .add_option("--seconds", written->seconds,
                  "the longest time to measure, after a first round of all\ncalls; 30 when left out")
      ->type_name("SECONDS");
  options.add_flag("--whole-time", written->takes_whole_time,
                   "do not stop before that, though repetitions agree");
  options.add_option("--most", written->most, "the largest size; 16MiB when left out")->type_name("BYTES");
  options.footer(kLesson);
  return [written] { return answer(*written); };
}

}  // namespace shardway::cli
