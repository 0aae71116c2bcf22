#include "shm/memory/process.h"

#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace shardway::shm {
namespace {

std::atomic<uint64_t> forks{0};

int64_t from_meminfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  int64_t kib = 0;
  while (file >> word) {
    if (word == key && file >> kib) return kib * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

// A file with one number; nothing when it says "max" or is not there.
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

struct ControlGroup {
  std::string folder;
  bool unified = false;
};

// The groups that hold this process, innermost first, up to the root.
std::vector<ControlGroup> control_groups(const std::string& controller) {
  std::vector<ControlGroup> groups;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,";
    if (!unified && controllers.find("," + controller + ",") == std::string::npos) continue;
    const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      groups.push_back({.folder = root + path, .unified = unified});
      if (path.find('/') == std::string::npos) break;
    }
  }
  return groups;
}

int64_t left_in(const ControlGroup& group) {
  const auto limit = number_in(group.folder + (group.unified ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = number_in(group.folder + (group.unified ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return std::numeric_limits<int64_t>::max();
  return std::max(*limit - *used, int64_t{0});
}

int64_t cores_paid_in(const ControlGroup& group) {
  int64_t quota = -1;
  int64_t period = 0;
  if (group.unified) {
    std::ifstream file(group.folder + "/cpu.max");
    if (!(file >> quota >> period)) return -1;
  } else {
    quota = number_in(group.folder + "/cpu.cfs_quota_us").value_or(-1);
    period = number_in(group.folder + "/cpu.cfs_period_us").value_or(0);
  }
  return quota > 0 && period > 0 ? std::max(quota / period, int64_t{1}) : -1;
}

}  // namespace

uint64_t fork_generation() {
  // Relaxed: a child has one thread, which wrote it.
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

namespace {

[[maybe_unused]] const uint64_t kGenerationAtLoad = fork_generation();

}  // namespace

File handle_of_process() {
  File process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (!process) throw std::system_error(errno, std::generic_category(), "pidfd_open");
  return process;
}

int64_t pid_of(const File& process) {
  std::ifstream file("/proc/self/fdinfo/" + std::to_string(process.get()));
  for (std::string word; file >> word;) {
    int64_t pid = 0;
    if (word == "Pid:" && file >> pid) return std::max(pid, int64_t{0});
  }
  return 0;
}

bool has_ended(const File& process) {
  pollfd handle{.fd = process.get(), .events = POLLIN, .revents = 0};
  return poll(&handle, 1, 0) > 0;
}

// "PID (command) state …": the command may hold anything, so it ends at the last bracket.
ProcessState state_of(int64_t pid) {
  std::ostringstream text;
  text << std::ifstream("/proc/" + std::to_string(pid) + "/stat").rdbuf();
  const std::string line = text.str();
  const size_t end = line.rfind(')');
  const char letter = end == std::string::npos || end + 2 >= line.size() ? 'X' : line[end + 2];
  switch (letter) {
    case 'X':
    case 'x':
    case 'Z':
      return ProcessState::ended;
    case 'T':
    case 't':
      return ProcessState::stopped;
    case 'R':
      return ProcessState::running;
    default:
      return ProcessState::sleeping;
  }
}

HostMark host_mark() {
  HostMark mark;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  file.read(mark.boot.data(), static_cast<std::streamsize>(mark.boot.size()) - 1);
  struct stat network {};
  if (stat("/proc/self/ns/net", &network) == 0) mark.network = network.st_ino;
  return mark;
}

bool are_apart(const HostMark& a, const HostMark& b) {
  const bool are_known = a.boot[0] != '\0' && b.boot[0] != '\0' && a.network != 0 && b.network != 0;
  return are_known && a != b;
}

const char* place_of(const HostMark& theirs, const HostMark& own) {
  if (theirs.boot != own.boot) return "on another host";
  return theirs.network == own.network ? "on this host" : "in another network namespace of this host";
}

int64_t available_memory_bytes() {
  int64_t bytes = from_meminfo("MemAvailable:");
  for (const ControlGroup& group : control_groups("memory")) bytes = std::min(bytes, left_in(group));
  return bytes;
}

int64_t physical_memory_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
}

cpu_set_t allowed_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof(cores), &cores);  // fails on machines of over 1024 cores: then none are known
  return cores;
}

int64_t core_quota() {
  int64_t cores = -1;
  for (const ControlGroup& group : control_groups("cpu")) {
    const int64_t paid = cores_paid_in(group);
    if (paid > 0) cores = cores < 0 ? paid : std::min(cores, paid);
  }
  return cores;
}

bool every_rank_has_a_core(std::span<const cpu_set_t> allowed, std::span<const int64_t> quotas) {
  cpu_set_t together;
  CPU_ZERO(&together);
  for (const cpu_set_t& cores : allowed) CPU_OR(&together, &together, &cores);
  int64_t cores = CPU_COUNT(&together);
  for (const int64_t quota : quotas) {
    if (quota > 0) cores = std::min(cores, quota);
  }
  return cores >= static_cast<int64_t>(allowed.size());
}

}  // namespace shardway::shm
