// shardway doctor
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/doctor/doctor_line.h"
#include "cli/doctor/kernel_lines.h"
#include "cli/doctor/machine_lines.h"
#include "cli/doctor/python_lines.h"
#include "cli/doctor/variable_lines.h"
#include "cli/notation.h"
#include "cli/subcommand.h"
#include "cli/terminal.h"
#include "shardway/version.h"

namespace shardway::cli {
namespace {

constexpr const char* kDoctorLesson =
    "A line for each thing that shardway needs or uses: ok; slow, where it works and could be faster; or\n"
    "broken, with what to do about it. Two ranks are started for each way in which tensors can move here,\n"
    "exchange values and check them. Torch and its engines are looked at by the Python that lies beside "
    "this\n"
    "program, or is the first python3 on the PATH, if it has shardway: `python -m shardway.doctor` prints\n"
    "that part alone.\n"
    "\n"
    "Examples:\n"
    "  shardway doctor\n"
    "  shardway doctor --python ~/venv/bin/python\n"
    "  shardway doctor --json | jq -r '.lines[] | select(.health != \"ok\") | .advice'\n"
    "\n"
    "Exit codes: 0; 1 when a line is broken; 2 for a mistake in the call.";

constexpr int64_t kUsualPatienceS = 20;

struct WrittenDoctor {
  bool wants_json = false;
  std::string python = {};
  std::string patience = {};
};

std::chrono::seconds read_patience(const std::string& written) {
  if (written.empty()) return std::chrono::seconds(kUsualPatienceS);
  try {
    return std::chrono::seconds(read_count(written, "a number of seconds, such as 60"));
  } catch (const std::invalid_argument& mistake) {
    throw std::invalid_argument("--patience " + written + ": " + mistake.what());
  }
}

bool is_on_path(const std::string& program) {
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): read, never set here
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((std::filesystem::path(folder) / program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

DoctorLine mpi_line() {
  if (is_on_path("mpirun") || is_on_path("mpiexec"))
    return {.subject = "MPI", .what = "mpirun is here: C++ programs can join over it (shardway/mpi.h)"};
  return {.subject = "MPI", .what = "no mpirun is on the PATH; only C++ programs of several hosts need one"};
}

DoctorLine gpu_line() {
  std::string version;
  std::getline(std::ifstream("/proc/driver/nvidia/version"), version);
  if (version.empty())
    return {.subject = "GPUs", .what = "no driver of NVIDIA's is loaded; CPU tensors need none"};
  return {.subject = "GPUs", .what = version};
}

DoctorLines all_lines(const WrittenDoctor& written) {
  const std::chrono::seconds patience = read_patience(written.patience);
  PythonLook python(written.python);  // first: it takes longest
  DoctorLines lines = machine_lines(facts_of_this_machine());
  const auto append = [&](DoctorLines more) {
    std::move(more.begin(), more.end(), std::back_inserter(lines));
  };
  append(variable_lines(variables_of_environment()));
  append(kernel_lines());
  append({mpi_line(), gpu_line(), shared_memory_line(patience)});
  append(python.lines(std::chrono::steady_clock::now() + patience));
  return lines;
}

Health worst_of(const DoctorLines& lines) {
  Health worst = Health::ok;
  for (const DoctorLine& line : lines) worst = std::max(worst, line.health);
  return worst;
}

std::string json_of(const DoctorLines& lines) {
  nlohmann::ordered_json json = {{"version", SHARDWAY_VERSION}, {"health", name_of(worst_of(lines))}};
  json["lines"] = nlohmann::ordered_json::array();
  for (const DoctorLine& line : lines)
    json["lines"].push_back({{"subject", line.subject},
                             {"health", name_of(line.health)},
                             {"what", line.what},
                             {"advice", line.advice}});
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string text_of(const DoctorLines& lines, const Terminal& terminal) {
  constexpr size_t kIndent = 34;
  std::string text;
  for (const DoctorLine& line : lines) {
    std::string head = name_of(line.health);
    head.resize(8, ' ');
    if (line.health != Health::ok) head = bold(terminal, head);
    std::string subject = line.subject;
    subject.resize(std::max(subject.size(), kIndent - 10), ' ');
    text += head + subject + "  " + line.what + "\n";
    if (!line.advice.empty()) text += std::string(kIndent, ' ') + faint(terminal, line.advice) + "\n";
  }
  return text;
}

}  // namespace

Answer add_doctor(CLI::App& options) {
  auto written = std::make_shared<WrittenDoctor>();
  options.set_help_flag("-h,--help", "print this help");
  options.add_flag("--json", written->wants_json, "JSON instead of text");
  options.add_option("--python", written->python, "the Python that is asked about torch")
      ->type_name("PROGRAM");
  options
      .add_option("--patience", written->patience,
                  "how long to wait for the two ranks, and for Python; 20 s when left out")
      ->type_name("SECONDS");
  options.footer(kDoctorLesson);
  return [written] {
    const DoctorLines lines = all_lines(*written);
    print(written->wants_json ? json_of(lines) : text_of(lines, terminal_of_stdout()));
    return worst_of(lines) == Health::broken ? ExitCode::no : ExitCode::yes;
  };
}

}  // namespace shardway::cli
