// shardway status
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <system_error>

#include "cli/notation.h"
#include "cli/status/job_report.h"
#include "cli/subcommand.h"
#include "record/flight_record.h"
#include "record/recorder.h"

namespace shardway::cli {
namespace {

constexpr const char* kStatusLesson =
    "Every rank keeps its last 64 calls in a small file that this program finds in /proc, even when the "
    "rank\n"
    "hangs. It is that of the user who runs the rank, and holds no data of tensors.\n"
    "\n"
    "A row is a rank of a group: the call that it is in, or the last one, with its number; since when; the\n"
    "bytes that it gives; and how many calls it is behind the first. Below, a line names every rank that "
    "holds\n"
    "the others up: one that has ended, is stopped or is in another op while others wait, and one that is\n"
    "behind when others have waited for 5 s.\n"
    "\n"
    "Examples:\n"
    "  shardway status\n"
    "      all jobs of this user on this host\n"
    "  shardway status --job 29500\n"
    "      the job with 29500 in its name, such as 'torchrun none 0 29500'\n"
    "  shardway status --watch\n"
    "      anew every second, until no job is left\n"
    "  shardway status --pid 4711 --json | jq '.jobs[].findings'\n"
    "      for programs; has the last calls of every rank too\n"
    "  mkdir calls && shardway status --job 29500 --dump calls/rank_ && torchfrtrace calls\n"
    "      the last calls of every rank in the format of torch's flight recorder, compared by torch\n"
    "\n"
    "Exit codes: 0 when nothing is stuck, or nothing runs; 1 when a rank holds others up, or the job that "
    "was\n"
    "asked for is not there; 2 for a mistake in the call.";

constexpr unsigned kWatchEveryS = 1;

struct WrittenStatus {
  std::string job = {};
  std::string pid = {};
  std::string dump = {};
  bool wants_json = false;
  bool watches = false;
};

struct StatusCall {
  std::string job = {};
  std::optional<int64_t> pid = std::nullopt;
  std::string dump = {};  // empty: none
  bool wants_json = false;
};

StatusCall read_call(const WrittenStatus& written) {
  if (!written.dump.empty() && (written.watches || written.wants_json))
    throw std::invalid_argument("--dump writes files once, and goes with neither --watch nor --json");
  StatusCall call{.job = written.job, .dump = written.dump, .wants_json = written.wants_json};
  if (written.pid.empty()) return call;
  try {
    call.pid = read_count(written.pid, "the number of a process, such as 4711");
  } catch (const std::invalid_argument& mistake) {
    throw std::invalid_argument("--pid " + written.pid + ": " + mistake.what());
  }
  return call;
}

bool is_asked_for(const record::JobView& job, const StatusCall& call) {
  const auto is_it = [&](const record::ProcessRecord* process) { return process->pid == call.pid; };
  const bool has_pid = !call.pid || std::any_of(job.processes.begin(), job.processes.end(), is_it);
  return has_pid && job.name.find(call.job) != std::string::npos;
}

// What one look says.
struct Look {
  std::string text = {};
  size_t jobs = 0;
  bool is_stuck = false;
};

Look look_at(const StatusCall& call, const Terminal& terminal, int indent) {
  const std::vector<record::ProcessRecord> records = record::all_records();
  const int64_t now = record::now_ns();
  nlohmann::ordered_json json = {{"jobs", nlohmann::ordered_json::array()}};
  Look look;
  for (const record::JobView& job : record::jobs_in(records)) {
    if (!is_asked_for(job, call)) continue;
    look.is_stuck = look.is_stuck || !findings_of(job, now).empty();
    if (call.wants_json) {
      json["jobs"].push_back(job_json(job, now));
    } else {
      look.text += (look.jobs == 0 ? "" : "\n") + job_text(job, terminal, now);
    }
    ++look.jobs;
  }
  if (call.wants_json) look.text = json.dump(indent) + "\n";
  return look;
}

std::string nothing_found(const StatusCall& call) {
  if (call.pid) return "process " + std::to_string(*call.pid) + " keeps no record, or is another user's";
  if (!call.job.empty()) return "no running job of this user has '" + call.job + "' in its name";
  return "no process of this user has made a shardway group";
}

ExitCode answer_once(const StatusCall& call) {
  const Look look = look_at(call, terminal_of_stdout(), 2);
  const bool is_particular = call.pid || !call.job.empty();
  if (look.jobs == 0 && is_particular) throw Refusal(nothing_found(call));
  print(look.jobs > 0 || call.wants_json ? look.text : nothing_found(call) + "\n");
  return look.is_stuck ? ExitCode::no : ExitCode::yes;
}

// Leaves a file for every process of the one job that is asked for.
ExitCode dump(const StatusCall& call) {
  const std::vector<record::ProcessRecord> records = record::all_records();
  std::vector<record::ProcessRecord> processes;
  size_t jobs = 0;
  for (const record::JobView& job : record::jobs_in(records)) {
    if (!is_asked_for(job, call)) continue;
    if (++jobs > 1) throw Refusal("several jobs are running: say with --job or --pid which one is meant");
    for (const record::ProcessRecord* process : job.processes) processes.push_back(*process);
  }
  if (jobs == 0) throw Refusal(nothing_found(call));
  std::string text;
  try {
    for (const record::ProcessRecord& process : processes)
      text += record::write_flight_record(call.dump, process, processes) + "\n";
  } catch (const std::system_error& error) {
    throw Refusal("--dump " + call.dump + ": " + error.what());
  }
  print(text + "torchfrtrace with the folder of these files compares them\n");
  return ExitCode::yes;
}

// Until no job is left. The exit code is that of the last look at one.
ExitCode watch(const StatusCall& call) {
  constexpr const char* kClear = "\x1b[H\x1b[2J";
  const bool is_terminal = isatty(STDOUT_FILENO) != 0 && !call.wants_json;
  for (ExitCode code = ExitCode::yes;; sleep(kWatchEveryS)) {
    const Look look = look_at(call, terminal_of_stdout(), -1);
    if (look.jobs == 0) {
      if (!call.wants_json) print(nothing_found(call) + "\n");
      return code;
    }
    print((is_terminal ? kClear : "") + look.text);
    code = look.is_stuck ? ExitCode::no : ExitCode::yes;
  }
}

}  // namespace

Answer add_status(CLI::App& options) {
  auto written = std::make_shared<WrittenStatus>();
  options.set_help_flag("-h,--help", "print this help");
  options.add_option("--job", written->job, "only jobs with this in their name")->type_name("NAME");
  options.add_option("--pid", written->pid, "only the job of this process")->type_name("PID");
  options.add_flag("--json", written->wants_json, "JSON instead of tables");
  options
      .add_option("--dump", written->dump,
                  "write every rank's last calls to the file PREFIX + rank, for torch's analyser")
      ->type_name("PREFIX");
  options.add_flag("--watch", written->watches, "look again every second");
  options.footer(kStatusLesson);
  return [written] {
    const StatusCall call = read_call(*written);
    if (!call.dump.empty()) return dump(call);
    return written->watches ? watch(call) : answer_once(call);
  };
}

}  // namespace shardway::cli
