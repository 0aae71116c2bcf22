// shardway calibrate
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/calibrate/calibration_output.h"
#include "cli/calibrate/trial_options.h"
#include "cli/calibrate/watched_trials.h"
#include "cli/notation.h"
#include "cli/option_value.h"
#include "cli/subcommand.h"
#include "plan/text/calibration_file.h"
#include "shm/join/pins.h"
#include "shm/memory/machine.h"
#include "shm/memory/process.h"

namespace shardway::cli {
namespace {

constexpr const char* kLesson =
    "Starts ranks on this machine, times gathers, reductions, exchanges and messages of many sizes between\n"
    "them, through shared memory, and fits the figures by which plans are priced. Sizes and parts are kept\n"
    "out of the fit: how far the prices are from what those took is the error that is printed. Calls are\n"
    "repeated until odd and even rounds agree, or the time is over. Let nothing else run meanwhile: if\n"
    "they still differ by more than 25 %, nothing is written.\n"
    "\n"
    "Where every rank has a core, two choices of shared memory are tried for two seconds first. Prices are\n"
    "those of groups that use what won. Groups use it where SHARDWAY_TOPOLOGY names the file, unless\n"
    "SHARDWAY_TUNING chooses.\n"
    "\n"
    "The figures hold for this machine and this number of ranks; a plan for others says so. If FILE has\n"
    "figures of this machine already, those of other numbers of ranks stay. --full measures groups of 2, 4,\n"
    "8 … ranks, up to one on each core, and one of twice as many, which share cores; with -n up to that\n"
    "many; and sizes up to 64MiB. --seconds are then those of each group.\n"
    "\n"
    "Ctrl-C ends it and keeps what was measured, unless that is less than one round: in FILE, or in\n"
    "FILE.partial if there is a FILE already.\n"
    "\n"
    "Examples:\n"
    "  shardway calibrate -n 4 -o topology.json\n"
    "  shardway calibrate --full -o topology.json --plot topology.svg\n"
    "  shardway plan --topology topology.json --mesh 4 --shape 4096x4096 --from S0 --to R\n"
    "  export SHARDWAY_TOPOLOGY=$PWD/topology.json\n"
    "\n"
    "Exit codes: 0; 1 when a rank fails, or nothing was measured, or too noisily; 2 for a mistake in the\n"
    "call; 130 when it was interrupted.";

constexpr int64_t kLeastBytes = 1024;
constexpr int64_t kUsualMostBytes = 16 << 20;
constexpr int64_t kFullMostBytes = 64 << 20;
constexpr int64_t kLeastMostBytes = 8 * kLeastBytes;  // four sizes, two of them for the fit
constexpr int64_t kMostMostBytes = int64_t{1} << 30;
constexpr int64_t kUsualSeconds = 30;
constexpr std::chrono::seconds kSecondsOfChoices{2};

struct WrittenCalibrate {
  TrialOptions trials = {};
  OutputNames output = {};
  std::string most = {};
  bool is_full = false;
  bool keeps_noisy = false;
};

int64_t read_most(const std::string& written) {
  const int64_t bytes = read_bytes(written);
  if (bytes < kLeastMostBytes || bytes > kMostMostBytes)
    throw std::invalid_argument("the largest size is from 8KiB to 1GiB");
  return bytes;
}

// Powers of two up to `most`, and `most` itself.
std::vector<int64_t> groups_up_to(int64_t most) {
  std::vector<int64_t> groups;
  for (int64_t ranks = 2; ranks < most; ranks *= 2) groups.push_back(ranks);
  groups.push_back(most);
  return groups;
}

// How many ranks each run has.
std::vector<int64_t> groups_of(const WrittenCalibrate& written) {
  if (!written.trials.ranks.empty()) {
    const int64_t ranks = read_trial_ranks(written.trials);
    return written.is_full ? groups_up_to(ranks) : std::vector{ranks};
  }
  if (!written.is_full) throw std::invalid_argument("--ranks is required, or --full");
  const int64_t cores = std::min(shm::usable_cores(), kMostTrialRanks / 2);
  std::vector<int64_t> groups = cores == 1 ? std::vector<int64_t>{} : groups_up_to(cores);
  groups.push_back(2 * cores);
  return groups;
}

// The largest size in full mode: one whose ranks take at most half of the memory that is free.
int64_t largest_for(int64_t ranks) {
  constexpr int64_t kBuffers = 4;  // of a rank, in largest sizes
  int64_t bytes = kFullMostBytes;
  while (bytes > kUsualMostBytes && ranks * kBuffers * bytes > shm::available_memory_bytes() / 2) bytes /= 2;
  return bytes;
}

Calibration about_this_machine() {
  return {.machine = shm::name_of_machine(),
          .processor = shm::model_of_processor(),
          .cores = shm::usable_cores(),
          .backend = "shared memory"};
}

// None where ranks share cores, for calls vary more there than by them, nor where SHARDWAY_TUNING has chosen.
MeasuredChoices choices_of_groups(const TrialLimits& limits) {
  if (limits.ranks > shm::usable_cores() || shm::pins_of_environment() != shm::TuningPins{}) return {};
  const std::vector<Trial> trials = trials_of_choices(limits.ranks);
  const TrialLimits brief{
      .ranks = limits.ranks, .time = std::min(limits.time, kSecondsOfChoices), .takes_whole_time = true};
  return measured_choices(trials, measure_until_interrupted(trials, brief).us);
}

// As SHARDWAY_TUNING has them; empty where nothing won.
std::string tuning_by(const MeasuredChoices& choices) {
  std::string text;
  const auto add = [&](const char* name, const std::optional<MeasuredChoice>& choice) {
    if (choice && choice->is_on())
      text += (text.empty() ? "" : ",") + std::string(name) + (*choice->is_on() ? "=1" : "=0");
  };
  add("swap", choices.swap);
  add("hand_back", choices.hand_back);
  return text;
}

// Prices are those of groups tuned by the choices that won.
MeasuredTopology measured_with(const std::vector<Trial>& trials, TrialLimits limits) {
  Calibration about = about_this_machine();
  about.choices = choices_of_groups(limits);
  limits.tuning = tuning_by(about.choices);
  const TrialResults results = measure_until_interrupted(trials, limits);
  about.ranks = limits.ranks;
  about.date = date_of_now();
  about.is_complete = results.is_complete;
  std::optional<MeasuredTopology> found = measured_topology(trials, results.us, about);
  if (!found) throw Refusal("it was interrupted before every call was made: nothing is written");
  return std::move(*found);
}

ExitCode answer(const WrittenCalibrate& written) {
  TrialLimits limits = read_limits(written.trials, kUsualSeconds);
  const auto read = [&] { return read_most(written.most); };
  const int64_t most = written.most.empty() ? 0 : value_of("--most", written.most, read);
  const std::vector<int64_t> groups = groups_of(written);
  CalibrationOutput output(written.output, about_this_machine());
  bool is_noisy = false;
  bool is_complete = true;
  for (size_t i = 0; i < groups.size() && is_complete; ++i) {
    limits.ranks = groups[i];
    const int64_t most_bytes = most > 0 ? most : written.is_full ? largest_for(groups[i]) : kUsualMostBytes;
    const MeasuredTopology run = measured_with(trials_between(kLeastBytes, most_bytes), limits);
    const bool is_kept = written.keeps_noisy || !run.calibration.is_void();
    print(report_of(run) + (is_kept ? output.add(run) : "it is not written\n"));
    is_noisy = is_noisy || !is_kept;
    is_complete = run.calibration.is_complete;
  }
  if (is_noisy)
    throw Refusal("odd and even rounds differ by more than 25 %: --keep-noisy writes such figures too");
  return is_complete ? ExitCode::yes : kInterrupted;
}

}  // namespace

Answer add_calibrate(CLI::App& options) {
  auto written = std::make_shared<WrittenCalibrate>();
  options.set_help_flag("-h,--help", "print this help");
  add_trial_options(options, written->trials, kUsualSeconds);
  options
      .add_option("-o,--output", written->output.file,
                  "the topology file to write, or to add this number of\nranks to")
      ->type_name("FILE")
      ->required();
  options.add_option("--most", written->most, "the largest size; 16MiB when left out")->type_name("BYTES");
  options.add_flag("--full", written->is_full, "groups of several sizes, and larger calls");
  options.add_option("--plot", written->output.plot, "draw calls and prices over sizes to an SVG file")
      ->type_name("FILE");
  options.add_flag("--keep-noisy", written->keeps_noisy, "write what was measured though it is too noisy");
  options.footer(kLesson);
  return [written] { return answer(*written); };
}

}  // namespace shardway::cli
