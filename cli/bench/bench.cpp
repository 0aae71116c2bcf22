// shardway bench
#include <sys/utsname.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/bench/bench_report.h"
#include "cli/bench/mpi_peers.h"
#include "cli/calibrate/trial_options.h"
#include "cli/calibrate/watched_trials.h"
#include "cli/nearest.h"
#include "cli/notation.h"
#include "cli/option_value.h"
#include "cli/subcommand.h"
#include "cli/whole_file.h"
#include "shardway/version.h"
#include "shm/memory/machine.h"

namespace shardway::cli {
namespace {

constexpr const char* kBenchLesson =
    "Starts ranks on this machine and times calls between them through shared memory. All calls are made in\n"
    "turn, round after round, of memory that each rank has written before, until odd and even rounds agree\n"
    "or the time is over. A call lasts from the first rank's start to the last rank's end; the median\n"
    "of its repetitions is printed. Ctrl-C ends it and keeps what was measured.\n"
    "\n"
    "Every MPI that is installed is measured after that in the same way: where mpirun and mpicc are on PATH\n"
    "(Debian's mpirun.openmpi and mpirun.mpich too), a program of ranks is compiled and started. --seconds\n"
    "are those of each library. gloo needs torch: torchrun -m shardway.bench compares with it.\n"
    "\n"
    "Columns are those of nccl-tests: algbw is size by time, busbw counts what each rank moves to or from\n"
    "others. Parts of ranks: even; rising, as 0 : 1 : 2 : …; leaning, as 3 : 3 : 2 : 2;\n"
    "alternating, as 3 : 1 : 3 : 1 : …\n"
    "\n"
    "Examples:\n"
    "  shardway bench -n 4\n"
    "  shardway bench -n 8 --ops all_reduce --sizes 1MiB:64MiB --csv bench.csv --plot bench.svg\n"
    "  shardway bench -n 4 --ops all_to_all,all_gather --parts even,rising --mpi none\n"
    "\n"
    "Exit codes: 0; 1 when a rank fails, or nothing was measured; 2 for a mistake in the call; 130 when it\n"
    "was interrupted.";

constexpr int64_t kMostBenchBytes = int64_t{1} << 30;
constexpr int64_t kBenchSeconds = 20;

struct WrittenBench {
  TrialOptions trials = {};
  std::string ops = {};
  std::string sizes = "1KiB:16MiB";
  std::string parts = "even";
  std::string csv = {};
  std::string json = {};
  std::string plot = {};
  std::string mpi = {};
};

struct SizeRange {
  int64_t first = 0;
  int64_t last = 0;
};

SizeRange read_sizes(const std::string& written) {
  const size_t colon = written.find(':');
  const SizeRange range{.first = read_bytes(written.substr(0, colon)),
                        .last = read_bytes(colon == std::string::npos ? written : written.substr(colon + 1))};
  if (range.first < kTrialItemBytes || range.last > kMostBenchBytes)
    throw std::invalid_argument("sizes are from 4 bytes to 1GiB");
  if (range.first > range.last) throw std::invalid_argument("the first size is larger than the last");
  return range;
}

// The values whose names are in a list such as "a,b".
template <class Value>
std::vector<Value> read_list(const std::string& written, const std::vector<Value>& known) {
  std::vector<Value> values;
  for (size_t begin = 0; begin <= written.size();) {
    const size_t end = std::min(written.find(',', begin), written.size());
    const std::string word = written.substr(begin, end - begin);
    const auto found =
        std::find_if(known.begin(), known.end(), [&](Value value) { return word == name_of(value); });
    if (found == known.end()) {
      std::vector<std::string> names;
      std::string list;
      for (const Value value : known) {
        names.emplace_back(name_of(value));
        list += (list.empty() ? "" : ", ") + names.back();
      }
      throw std::invalid_argument("'" + word + "' is not one of " + list.append(did_you_mean(word, names)));
    }
    values.push_back(*found);
    begin = end + 1;
  }
  return values;
}

// An all_reduce and a message to the next rank have no parts.
bool has_parts(StepKind kind) { return kind != StepKind::all_reduce && kind != StepKind::permute; }

std::vector<Trial> trials_of(const WrittenBench& written) {
  const std::vector<StepKind> all(std::begin(kMeasuredKinds), std::end(kMeasuredKinds));
  const std::vector<StepKind> kinds =
      written.ops.empty() ? all : value_of("--ops", written.ops, [&] { return read_list(written.ops, all); });
  const SizeRange sizes = value_of("--sizes", written.sizes, [&] { return read_sizes(written.sizes); });
  const std::vector<Portions> parts = value_of("--parts", written.parts, [&] {
    return read_list<Portions>(written.parts, {std::begin(kPortions), std::end(kPortions)});
  });
  std::vector<Trial> trials;
  for (const StepKind kind : kinds) {
    for (const Portions each : parts) {
      if (each != Portions::even && !has_parts(kind)) continue;
      for (int64_t bytes = sizes.first; bytes <= sizes.last; bytes *= 2)
        trials.push_back({.kind = kind, .bytes = bytes / kTrialItemBytes * kTrialItemBytes, .parts = each});
    }
  }
  if (trials.empty()) throw std::invalid_argument("none of these ops has parts that are not even");
  return trials;
}

std::string kernel_release() {
  utsname names{};
  return uname(&names) == 0 ? names.release : "";
}

void write_files(const WrittenBench& written, const BenchResult& result) {
  if (!written.csv.empty()) write_whole(written.csv, bench_csv(result));
  if (!written.json.empty()) write_whole(written.json, bench_json(result));
  if (!written.plot.empty()) write_whole(written.plot, bench_svg(result));
}

constexpr const char* kNoMpi = "none";

std::vector<MpiPeer> mpis_of(const WrittenBench& written) {
  if (written.mpi == kNoMpi) return {};
  return value_of("--mpi", written.mpi, [&] { return found_mpis(written.mpi); });
}

// What was measured of all libraries, and with which there is nothing to compare.
struct LibraryRuns {
  std::vector<LibraryTimes> times = {};
  std::vector<std::string> not_compared = {};
  bool is_complete = true;
};

// A failure of an MPI is no failure of the bench.
void add_mpi(const MpiPeer& peer, const std::vector<Trial>& trials, const TrialLimits& limits,
             LibraryRuns& runs) {
  try {
    watch_until_interrupted(limits, [&](const TrialWatch& watch) {
      MpiResults results = measure_mpi(peer, trials, limits, watch);
      runs.times.push_back({.library = results.library, .us = std::move(results.trials.us)});
      runs.is_complete = results.trials.is_complete;
    });
  } catch (const std::runtime_error& failure) {
    runs.not_compared.push_back("the MPI of " + peer.launcher + ": " + failure.what());
  }
}

LibraryRuns measure_all(const std::vector<Trial>& trials, const TrialLimits& limits,
                        const std::vector<MpiPeer>& mpis, const WrittenBench& written) {
  TrialResults own = measure_until_interrupted(trials, limits);
  LibraryRuns runs{.times = {{.us = std::move(own.us)}}, .is_complete = own.is_complete};
  for (const MpiPeer& peer : mpis) {
    if (runs.is_complete) {
      add_mpi(peer, trials, limits, runs);
    } else {
      runs.not_compared.push_back("the MPI of " + peer.launcher + ": it was interrupted before");
    }
  }
  if (written.mpi == kNoMpi) runs.not_compared.emplace_back("an MPI: --mpi none says so");
  if (mpis.empty() && written.mpi.empty())
    runs.not_compared.emplace_back("an MPI: there are no mpirun and mpicc on PATH; --mpi DIR says where");
  runs.not_compared.emplace_back("gloo: that needs torch; torchrun -m shardway.bench does it");
  return runs;
}

ExitCode answer(const WrittenBench& written) {
  TrialLimits limits = read_limits(written.trials, kBenchSeconds);
  limits.ranks = read_trial_ranks(written.trials);
  const std::vector<Trial> trials = trials_of(written);
  for (const std::string& file : {written.csv, written.json, written.plot}) {
    if (!file.empty()) refuse_unwritable(file);
  }
  const LibraryRuns measured = measure_all(trials, limits, mpis_of(written), written);
  const BenchResult result{.setting = {.version = SHARDWAY_VERSION,
                                       .machine = shm::name_of_machine(),
                                       .processor = shm::model_of_processor(),
                                       .kernel = kernel_release(),
                                       .cores = shm::usable_cores(),
                                       .ranks = limits.ranks,
                                       .date = date_of_now(),
                                       .is_complete = measured.is_complete},
                           .rows = bench_rows(trials, measured.times, limits.ranks),
                           .not_compared = measured.not_compared};
  if (result.rows.empty()) throw Refusal("it was interrupted before a call was made twice");
  print(bench_text(result));
  write_files(written, result);
  if (!measured.is_complete) print("it was interrupted: this is what was measured until then\n");
  return measured.is_complete ? ExitCode::yes : kInterrupted;
}

}  // namespace

Answer add_bench(CLI::App& options) {
  auto written = std::make_shared<WrittenBench>();
  options.set_help_flag("-h,--help", "print this help");
  add_trial_options(options, written->trials, kBenchSeconds)->required();
  options
      .add_option(
          "--ops", written->ops,
          "which calls, such as all_gather,all_reduce; all of\nall_gather, reduce_scatter, all_reduce, "
          "all_to_all and\npermute (to the next rank) when left out")
      ->type_name("OPS");
  options
      .add_option("--sizes", written->sizes,
                  "the smallest and the largest size; they double between;\n1KiB:16MiB when left out")
      ->type_name("BYTES:BYTES");
  options
      .add_option("--parts", written->parts,
                  "how ranks share: even, rising, leaning, alternating; even\nwhen left out")
      ->type_name("PARTS");
  options.add_option("--csv", written->csv, "write the rows to a file of comma-separated values")
      ->type_name("FILE");
  options.add_option("--json", written->json, "write the rows to a JSON file")->type_name("FILE");
  options.add_option("--plot", written->plot, "draw times over sizes to an SVG file")->type_name("FILE");
  options
      .add_option("--mpi", written->mpi,
                  "where to look for an MPI in place of PATH; none: compare\nwith no MPI")
      ->type_name("DIR");
  options.footer(kBenchLesson);
  return [written] { return answer(*written); };
}

}  // namespace shardway::cli
