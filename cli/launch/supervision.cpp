#include "cli/launch/supervision.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "cli/launch/leftovers.h"
#include "cli/launch/members.h"
#include "cli/launch/rank_lines.h"
#include "cli/launch/rank_process.h"
#include "cli/terminal.h"

namespace shardway::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kGrace = 5s;  // between asking ranks to end and ending them
constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

bool asks_to_end(uint32_t signal) { return signal != SIGUSR1 && signal != SIGUSR2; }

int code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::string sentence_of(const std::string& subject, int status) {
  if (WIFSIGNALED(status)) return subject + " was ended by a signal: " + strsignal(WTERMSIG(status));
  return subject + " ended with exit code " + std::to_string(WEXITSTATUS(status));
}

// A child that has ended and is still to be waited for, or 0.
pid_t ended_child() {
  siginfo_t news{};
  return waitid(P_ALL, 0, &news, WEXITED | WNOHANG | WNOWAIT) == 0 ? news.si_pid : 0;
}

class Supervisor {
 public:
  explicit Supervisor(const LaunchCall& call)
      : call_(call),
        signals_(signals_as_file()),
        launch_(fresh_launch(call)),
        members_(members_of(call, launch_)),
        files_(make_room_for(members_)),
        keeper_(launch_.job) {
    adopt_orphans();
  }

  // Nothing outlives the launcher, not even where an exception ends it.
  ~Supervisor() {
    const auto deadline = Clock::now() + kGrace;  // what cannot be ended by then is left to the system
    while (tell_leftovers(SIGKILL) && Clock::now() < deadline) {
      for (pid_t pid = ended_child(); pid > 0; pid = ended_child()) waitpid(pid, nullptr, 0);
      std::this_thread::sleep_for(1ms);
    }
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  int run() {
    start();
    while (is_any_alive() || ask_leftovers_to_end()) {
      wait_for_news();
      show_output();
      pass_signals_on();
      hear_end_of_launcher();
      reap();
      if (ending_since_ && Clock::now() - *ending_since_ > kGrace) tell_all(SIGKILL);
    }
    show_output();
    for (RankLines& lines : streams_) lines.show_rest();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw std::invalid_argument("standard output cannot be written");
    if (failed_ > 0 && goes_on_)
      std::fprintf(stderr, "shardway launch: %zu of %zu %s ended with exit code 0\n",
                   members_.size() - static_cast<size_t>(failed_), members_.size(),
                   call_.hosts.empty() ? "ranks" : "hosts");
    return code_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static shm::File signals_as_file() {
    // Where it is ignored, as a parent may have left it, children that end would be forgotten. The others
    // stay as they are: under nohup neither the launcher nor a rank minds SIGHUP.
    signal(SIGCHLD, SIG_DFL);
    sigset_t watched;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (const int signal : kPassedOn) sigaddset(&watched, signal);
    sigprocmask(SIG_BLOCK, &watched, nullptr);
    shm::File file(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!file) throw std::system_error(errno, std::generic_category(), "signalfd");
    return file;
  }

  void start() {
    const Terminal terminal = terminal_of_stdout();
    for (size_t i = 0; i < members_.size(); ++i) {
      const std::string& prefix = members_[i].prefix;
      const std::string before =
          prefix.empty() ? "" : in_colour_of(static_cast<int64_t>(i), terminal, prefix) + " ";
      streams_.emplace_back(before, stdout);
      streams_.emplace_back(before, stderr);
      ranks_.push_back(start_member(members_[i], files_));
    }
  }

  bool is_any_alive() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const RankProcess& rank) { return rank.pid > 0; });
  }

  void tell_all(int signal) const {
    for (const RankProcess& rank : ranks_) {
      if (rank.pid > 0) kill(-rank.pid, signal);
    }
  }

  void wait_for_news() const {
    std::vector<pollfd> files = {{.fd = signals_.get(), .events = POLLIN, .revents = 0}};
    for (const RankProcess& rank : ranks_) {
      files.push_back({.fd = rank.out.get(), .events = POLLIN, .revents = 0});
      files.push_back({.fd = rank.err.get(), .events = POLLIN, .revents = 0});
    }
    if (watches_input_) files.push_back({.fd = STDIN_FILENO, .events = POLLIN, .revents = 0});
    poll(files.data(), files.size(), ending_since_ || leaving_since_ ? 100 : -1);
  }

  void show_output() {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].out && !streams_[2 * i].read_from(ranks_[i].out)) ranks_[i].out = shm::File();
      if (ranks_[i].err && !streams_[2 * i + 1].read_from(ranks_[i].err)) ranks_[i].err = shm::File();
    }
  }

  void pass_signals_on() {
    signalfd_siginfo news{};
    while (read(signals_.get(), &news, sizeof(news)) == sizeof(news)) {
      if (news.ssi_signo == SIGCHLD) continue;
      if (!call_.hosts.empty() && !asks_to_end(news.ssi_signo)) continue;  // would only end the agents
      is_asked_to_end_ = is_asked_to_end_ || asks_to_end(news.ssi_signo);
      tell_all(static_cast<int>(news.ssi_signo));
      if (leaving_since_) tell_leftovers(static_cast<int>(news.ssi_signo));
    }
  }

  // A launcher on another host, which has ended, or its agent, held the other end of standard input.
  void hear_end_of_launcher() {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    if (!watches_input_ || poll(&input, 1, 0) <= 0) return;
    std::array<char, 256> unread{};
    if (read(STDIN_FILENO, unread.data(), unread.size()) > 0) return;
    watches_input_ = false;
    is_asked_to_end_ = true;
    end_all();
  }

  void end_all() {
    if (!ending_since_) ending_since_ = Clock::now();
    tell_all(SIGTERM);
    tell_all(SIGCONT);
  }

  // Whether there is any process below this one, the keeper aside. Processes of other users cannot be told
  // anything.
  bool tell_leftovers(int signal) const {
    bool is_any = false;
    for (const pid_t pid : descendants()) {
      if (pid != keeper_.pid() && kill(pid, signal) == 0) is_any = true;
    }
    return is_any;
  }

  // What is left when the last rank has ended, in whatever session; false when nothing is.
  bool ask_leftovers_to_end() {
    if (!leaving_since_) {
      leaving_since_ = Clock::now();
      return tell_leftovers(SIGTERM) && tell_leftovers(SIGCONT);
    }
    return Clock::now() - *leaving_since_ < kGrace && tell_leftovers(0);
  }

  // Ranks, and orphans that were adopted.
  void reap() {
    for (pid_t pid = ended_child(); pid > 0; pid = ended_child()) {
      const auto rank = std::ranges::find(ranks_, pid, &RankProcess::pid);
      // What a rank leaves behind ends with it. Its number is not given to another before it is waited for.
      if (rank != ranks_.end()) kill(-pid, SIGTERM);
      int status = 0;
      waitpid(pid, &status, 0);
      if (rank == ranks_.end()) continue;
      rank->pid = -1;
      if (status != 0) hear_of_failure(rank->title, status);
    }
  }

  void hear_of_failure(const std::string& title, int status) {
    const bool is_borne = ++failed_ <= call_.may_lose && !is_asked_to_end_;
    if (code_ == 0 && !is_borne) code_ = code_of(status);
    const bool is_told_elsewhere = call_.part && is_asked_to_end_;
    if (ending_since_ || is_told_elsewhere) return;
    goes_on_ = is_borne || (call_.keeps_going && !is_asked_to_end_);
    const bool ends_others = !goes_on_ && is_any_alive();
    std::fprintf(stderr, "shardway launch: %s%s\n", sentence_of(title, status).c_str(),
                 ends_others ? "; the others are ended" : "");
    if (ends_others) end_all();
  }

  const LaunchCall& call_;
  shm::File signals_;
  LaunchIdentity launch_;
  std::vector<LaunchMember> members_;
  rlimit files_;  // that a member may open; the launcher itself may need more
  Keeper keeper_;
  std::vector<RankProcess> ranks_;
  std::vector<RankLines> streams_;                  // two per rank
  std::optional<Clock::time_point> ending_since_;   // the ranks were asked to end, after one had failed
  std::optional<Clock::time_point> leaving_since_;  // no rank is left
  bool watches_input_ = call_.part.has_value();     // it ends with the launcher on another host
  bool is_asked_to_end_ = false;                    // by a signal that was passed on
  bool goes_on_ = false;                            // with the ranks that are left, after the last failure
  int64_t failed_ = 0;
  int code_ = 0;  // of the first rank whose failure is not borne
};

}  // namespace

int supervise(const LaunchCall& call) { return Supervisor(call).run(); }

}  // namespace shardway::cli
