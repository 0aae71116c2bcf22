#include "shm/memory/job.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace shardway::shm {
namespace {

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_set(const char* name) { return !text_of(name).empty(); }

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument("join: " + why); }

int64_t number_of(const char* name, const std::string& launcher) {
  const std::string text = text_of(name);
  if (text.empty()) refuse(std::string(name) + " is not set, as " + launcher + " would");
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    refuse(std::string(name) + "=" + text + " is not a number");
  return value;
}

// The variables of one launcher.
struct Variables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_size;
};

constexpr Variables kLaunch = {"shardway launch", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
constexpr Variables kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
constexpr Variables kOpenMpi = {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Variables kMpich = {"MPICH's mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"};

Job read(const Variables& variables, std::string name) {
  const std::string launcher = variables.launcher;
  Job job{.rank = number_of(variables.rank, launcher),
          .size = number_of(variables.size, launcher),
          .name = std::move(name),
          .launcher = launcher};
  if (is_set(variables.local_size)) job.local_size = number_of(variables.local_size, launcher);
  if (job.size < 1) refuse(std::string(variables.size) + "=" + std::to_string(job.size) + " is less than 1");
  if (job.rank < 0 || job.rank >= job.size)
    refuse(std::string(variables.rank) + "=" + std::to_string(job.rank) + " is not one of " +
           std::to_string(job.size) + " ranks");
  return job;
}

struct Process {
  std::string command;
  int64_t parent = 0;
};

// "PID (command) state parent …": the command may hold anything, so it ends at the last bracket.
Process process_of(int64_t pid) {
  std::ostringstream text;
  text << std::ifstream("/proc/" + std::to_string(pid) + "/stat").rdbuf();
  const std::string line = text.str();
  const size_t begin = line.find('(');
  const size_t end = line.rfind(')');
  if (begin == std::string::npos || end == std::string::npos) return {};
  std::istringstream rest(line.substr(end + 1));
  Process process{.command = line.substr(begin + 1, end - begin - 1)};
  std::string state;
  rest >> state >> process.parent;
  return process;
}

// Returns the process that starts all MPICH ranks of a host, possibly through scripts, or the parent if there
// is none. It stands for the job, which MPICH does not name.
int64_t mpich_starter() {
  for (int64_t pid = getppid(); pid > 1;) {
    const Process process = process_of(pid);
    if (process.command == "hydra_pmi_proxy") return pid;
    pid = process.parent;
  }
  return getppid();
}

std::string torchrun_name() {
  return "torchrun " + text_of("TORCHELASTIC_RUN_ID") + " " + text_of("TORCHELASTIC_RESTART_COUNT") + " " +
         text_of("MASTER_PORT");
}

// The port, and what a batch system calls its job, are all that ranks started by hand have in common.
Job job_by_hand() {
  const std::string port = std::to_string(number_of("MASTER_PORT", "torchrun"));
  std::string name = "by hand " + port;
  for (const char* batch_job : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}) name += " " + text_of(batch_job);
  Job job = read(kTorchrun, std::move(name));
  job.has_id = false;
  job.launcher = "started by hand, MASTER_PORT=" + port;
  return job;
}

}  // namespace

// The innermost launcher comes first: torchrun may run below mpirun, and the ranks that it starts are its
// own.
Job job_of_environment() {
  if (is_set("SHARDWAY_JOB")) return read(kLaunch, "launch " + text_of("SHARDWAY_JOB"));
  if (is_set("TORCHELASTIC_RUN_ID")) return read(kTorchrun, torchrun_name());
  if (is_set("OMPI_COMM_WORLD_RANK"))
    return read(kOpenMpi, "openmpi " + text_of("PMIX_NAMESPACE") + " " + text_of("PMIX_SERVER_TMPDIR"));
  if (is_set("PMI_RANK"))
    return read(kMpich, "mpich " + text_of("PMI_JOBID") + " " + std::to_string(mpich_starter()));
  if (is_set("RANK") || is_set("WORLD_SIZE")) return job_by_hand();
  return {};
}

}  // namespace shardway::shm
