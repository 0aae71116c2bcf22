#include "cli/launch/rank_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <system_error>

namespace shardway::cli {
namespace {

using shm::File;

[[noreturn]] void raise_error(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

constexpr int64_t kOtherFiles = 32;  // of the launcher

struct Pipe {
  File from;
  File to;
};

Pipe fresh_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) raise_error("pipe");
  return {.from = File(ends[0]), .to = File(ends[1])};
}

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// The names are torchrun's.
void set_environment(const LaunchCall& call, const LaunchIdentity& launch, int64_t rank) {
  const std::string ranks = std::to_string(call.ranks);
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", ranks);
  set("LOCAL_WORLD_SIZE", ranks);
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(launch.port));
  set("SHARDWAY_JOB", launch.job);
  if (call.ranks > 1) setenv("OMP_NUM_THREADS", "1", 0);
}

// The first rank reads standard input, unless that is a terminal, which only one process group may read.
void set_input(int64_t rank) {
  if (rank == 0 && isatty(STDIN_FILENO) == 0) return;
  const File nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  dup2(nothing.get(), STDIN_FILENO);
}

void set_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// In the child: becomes the program, or writes why it cannot.
[[noreturn]] void become(const LaunchCall& call, const LaunchIdentity& launch, int64_t rank, pid_t launcher,
                         const Pipe& why_not) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);
  setpgid(0, 0);
  set_environment(call, launch, rank);
  set_input(rank);
  set_signals();
  setrlimit(RLIMIT_NOFILE, &launch.files);
  std::vector<char*> arguments;
  for (const std::string& argument : call.command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  (void)!write(why_not.to.get(), &error, sizeof(error));
  _exit(1);
}

// Raises the limit so that the launcher can read two streams of every rank. Returns the limit before.
rlimit make_room_for(int64_t ranks) {
  rlimit before{};
  if (getrlimit(RLIMIT_NOFILE, &before) != 0) raise_error("getrlimit");
  const auto needed = static_cast<rlim_t>(kOtherFiles + 2 * ranks);
  if (needed > before.rlim_max)
    throw std::invalid_argument("--ranks " + std::to_string(ranks) + " needs " + std::to_string(needed) +
                                " open files, and the limit is " + std::to_string(before.rlim_max) +
                                " (ulimit -n)");
  const rlimit after{.rlim_cur = std::max(before.rlim_cur, needed), .rlim_max = before.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &after) != 0) raise_error("setrlimit");
  return before;
}

uint16_t free_port() {
  const File listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (!listener || bind(listener.get(), any, bytes) != 0 || getsockname(listener.get(), any, &bytes) != 0)
    raise_error("no free port");
  return ntohs(address.sin_port);
}

}  // namespace

LaunchIdentity fresh_launch(const LaunchCall& call) {
  std::random_device random;
  return {.job = std::to_string(random()) + "-" + std::to_string(random()) + "-" + std::to_string(getpid()),
          .port = free_port(),
          .files = make_room_for(call.ranks)};
}

RankProcess start_rank(const LaunchCall& call, const LaunchIdentity& launch, int64_t rank) {
  Pipe out = fresh_pipe();
  Pipe err = fresh_pipe();
  Pipe why_not = fresh_pipe();
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0)
    throw std::invalid_argument("rank " + std::to_string(rank) + " of " + std::to_string(call.ranks) +
                                " cannot be started: " + std::generic_category().message(errno));
  if (pid == 0) {
    dup2(out.to.get(), STDOUT_FILENO);
    dup2(err.to.get(), STDERR_FILENO);
    become(call, launch, rank, launcher, why_not);
  }
  setpgid(pid, pid);  // parent and child both do it: either may be first
  why_not.to = File();
  int error = 0;
  if (read(why_not.from.get(), &error, sizeof(error)) == sizeof(error)) {
    waitpid(pid, nullptr, 0);
    throw std::invalid_argument(call.command.front() + ": " + std::generic_category().message(error));
  }
  for (const File* end : {&out.from, &err.from}) fcntl(end->get(), F_SETFL, O_NONBLOCK);
  return {.rank = rank, .pid = pid, .out = std::move(out.from), .err = std::move(err.from)};
}

}  // namespace shardway::cli
