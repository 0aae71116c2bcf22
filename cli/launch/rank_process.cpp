#include "cli/launch/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace shardway::cli {
namespace {

using shm::File;

[[noreturn]] void raise_error(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

constexpr rlim_t kOtherFiles = 32;  // of the launcher

struct Pipe {
  File from = {};
  File to = {};
};

Pipe fresh_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) raise_error("pipe");
  return {.from = File(ends[0]), .to = File(ends[1])};
}

void set_environment(const LaunchMember& member) {
  for (const Variable& variable : member.variables) setenv(variable.name.c_str(), variable.value.c_str(), 1);
  if (member.shares_host) setenv("OMP_NUM_THREADS", "1", 0);
}

// A terminal is not handed on: only one process group may read it.
void set_input(MemberInput input, const Pipe& lifeline) {
  if (input == MemberInput::lifeline) dup2(lifeline.from.get(), STDIN_FILENO);
  const bool is_terminal = isatty(STDIN_FILENO) != 0;
  if (input == MemberInput::nothing || (input == MemberInput::launchers && is_terminal)) {
    const File nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    dup2(nothing.get(), STDIN_FILENO);
  }
}

void set_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// In the child: becomes the program, or writes why it cannot.
[[noreturn]] void become(const LaunchMember& member, const rlimit& files, pid_t launcher,
                         const Pipe& lifeline, const Pipe& why_not) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);
  setpgid(0, 0);
  set_environment(member);
  set_input(member.input, lifeline);
  set_signals();
  setrlimit(RLIMIT_NOFILE, &files);
  std::vector<char*> arguments;
  for (const std::string& argument : member.command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  (void)!write(why_not.to.get(), &error, sizeof(error));
  _exit(1);
}

}  // namespace

rlimit make_room_for(const std::vector<LaunchMember>& members) {
  rlimit before{};
  if (getrlimit(RLIMIT_NOFILE, &before) != 0) raise_error("getrlimit");
  rlim_t needed = kOtherFiles;
  for (const LaunchMember& member : members) needed += member.input == MemberInput::lifeline ? 3 : 2;
  if (needed > before.rlim_max)
    throw std::invalid_argument("--ranks " + std::to_string(members.size()) + " needs " +
                                std::to_string(needed) + " open files, and the limit is " +
                                std::to_string(before.rlim_max) + " (ulimit -n)");
  const rlimit after{.rlim_cur = std::max(before.rlim_cur, needed), .rlim_max = before.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &after) != 0) raise_error("setrlimit");
  return before;
}

RankProcess start_member(const LaunchMember& member, const rlimit& files) {
  Pipe out = fresh_pipe();
  Pipe err = fresh_pipe();
  Pipe why_not = fresh_pipe();
  Pipe lifeline = member.input == MemberInput::lifeline ? fresh_pipe() : Pipe{};
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0)
    throw std::invalid_argument(member.title +
                                " cannot be started: " + std::generic_category().message(errno));
  if (pid == 0) {
    dup2(out.to.get(), STDOUT_FILENO);
    dup2(err.to.get(), STDERR_FILENO);
    become(member, files, launcher, lifeline, why_not);
  }
  setpgid(pid, pid);  // parent and child both do it: either may be first
  why_not.to = File();
  int error = 0;
  if (read(why_not.from.get(), &error, sizeof(error)) == sizeof(error)) {
    waitpid(pid, nullptr, 0);
    throw std::invalid_argument(member.command.front() + ": " + std::generic_category().message(error));
  }
  for (const File* end : {&out.from, &err.from}) fcntl(end->get(), F_SETFL, O_NONBLOCK);
  return {.title = member.title,
          .pid = pid,
          .out = std::move(out.from),
          .err = std::move(err.from),
          .lifeline = std::move(lifeline.to)};
}

}  // namespace shardway::cli
