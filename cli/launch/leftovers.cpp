#include "cli/launch/leftovers.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <system_error>

namespace shardway::cli {
namespace {

constexpr int kMostRounds = 500;
constexpr useconds_t kPauseUs = 10'000;

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  while (const dirent* entry = folder ? readdir(folder.get()) : nullptr) {
    if (const int pid = std::atoi(entry->d_name); pid > 0) pids.push_back(pid);
  }
  return pids;
}

std::string text_of(pid_t pid, const char* file) {
  std::ostringstream text;
  text << std::ifstream("/proc/" + std::to_string(pid) + "/" + file).rdbuf();
  return text.str();
}

// Reads "PID (command) state parent …". The command may hold anything, so it ends at the last bracket. Zero
// means that the process has ended.
pid_t parent_of(pid_t pid) {
  const std::string line = text_of(pid, "stat");
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream rest(line.substr(end + 1));
  char state = 'Z';
  pid_t parent = 0;
  rest >> state >> parent;
  return state == 'Z' ? 0 : parent;
}

bool is_of_job(pid_t pid, const std::string& job) {
  const std::string entry = "SHARDWAY_JOB=" + job;
  const std::string environment = '\0' + text_of(pid, "environ") + '\0';
  return environment.find('\0' + entry + '\0') != std::string::npos;
}

void end_job(const std::string& job) {
  for (int round = 0; round < kMostRounds; ++round) {
    bool is_any_left = false;
    for (const pid_t pid : all_processes()) {
      if (is_of_job(pid, job) && kill(pid, SIGKILL) == 0) is_any_left = true;
    }
    if (!is_any_left) return;
    usleep(kPauseUs);
  }
}

// In the child: a byte says that nothing is left to do.
[[noreturn]] void keep(const shm::File& launcher, const std::string& job) {
  setsid();
  prctl(PR_SET_NAME, "shardway-keeper");
  char byte = 0;
  ssize_t got = 0;
  while ((got = read(launcher.get(), &byte, 1)) < 0 && errno == EINTR) {
  }
  if (got == 0) end_job(job);
  _exit(0);
}

}  // namespace

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> descendants() {
  std::multimap<pid_t, pid_t> children;
  for (const pid_t pid : all_processes()) children.emplace(parent_of(pid), pid);
  std::vector<pid_t> found = {getpid()};
  for (size_t next = 0; next < found.size(); ++next) {
    const auto [begin, end] = children.equal_range(found[next]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

Keeper::Keeper(const std::string& job) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const shm::File theirs(ends[0]);
  launcher_is_alive_ = shm::File(ends[1]);
  pid_ = fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ > 0) return;
  launcher_is_alive_ = shm::File();
  keep(theirs, job);
}

Keeper::~Keeper() {
  const auto before = std::signal(SIGPIPE, SIG_IGN);  // the keeper may be gone
  (void)!write(launcher_is_alive_.get(), "", 1);
  std::signal(SIGPIPE, before);
  launcher_is_alive_ = shm::File();
  waitpid(pid_, nullptr, 0);
}

}  // namespace shardway::cli
