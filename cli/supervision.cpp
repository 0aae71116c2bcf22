#include "cli/supervision.h"

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

#include "cli/terminal.h"

namespace shardway::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kGrace = 5s;  // between asking ranks to end and ending them
constexpr size_t kLongestLine = 1 << 16;
constexpr size_t kMostAtOnce = 1 << 16;
constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// What a rank prints on one of its two streams, cut into lines.
class Lines {
 public:
  Lines(std::string before, FILE* to) : before_(std::move(before)), to_(to) {}

  // Shows what is there to read, and no more than a pipe holds, for others have something to say as well;
  // false at the end.
  bool read_from(const shm::File& from) {
    std::array<char, 1 << 14> buffer{};
    for (size_t bytes = 0; bytes < kMostAtOnce; bytes += buffer.size()) {
      const ssize_t got = read(from.get(), buffer.data(), buffer.size());
      if (got < 0) return errno == EAGAIN || errno == EINTR;
      if (got == 0) return false;
      text_.append(buffer.data(), static_cast<size_t>(got));
      show_whole_lines();
    }
    return true;
  }

  void show_rest() {
    if (!text_.empty()) show(text_);
    text_.clear();
  }

 private:
  void show_whole_lines() {
    size_t begin = 0;
    for (size_t end = 0; (end = text_.find('\n', begin)) != std::string::npos; begin = end + 1)
      show(std::string_view(text_).substr(begin, end - begin));
    text_.erase(0, begin);
    if (text_.size() >= kLongestLine) show_rest();
    std::fflush(to_);
  }

  void show(std::string_view line) {
    std::fprintf(to_, "%s%.*s\n", before_.c_str(), static_cast<int>(line.size()), line.data());
  }

  std::string before_;
  FILE* to_;
  std::string text_;
};

int code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

std::string sentence_of(int64_t rank, int status) {
  const std::string subject = "rank " + std::to_string(rank);
  if (WIFSIGNALED(status)) return subject + " was ended by a signal: " + strsignal(WTERMSIG(status));
  return subject + " ended with exit code " + std::to_string(WEXITSTATUS(status));
}

bool has_ended(pid_t pid) {
  siginfo_t news{};
  return waitid(P_PID, static_cast<id_t>(pid), &news, WEXITED | WNOHANG | WNOWAIT) == 0 && news.si_pid == pid;
}

class Supervisor {
 public:
  explicit Supervisor(const LaunchCall& call) : call_(call), signals_(signals_as_file()) {}

  // Nothing outlives the launcher, not even where an exception ends it.
  ~Supervisor() {
    tell_all(SIGKILL);
    for (const RankProcess& rank : ranks_) {
      if (rank.pid > 0) waitpid(rank.pid, nullptr, 0);
    }
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  int run() {
    start();
    while (is_any_alive()) {
      wait_for_news();
      show_output();
      pass_signals_on();
      reap();
      if (ending_since_ && Clock::now() - *ending_since_ > kGrace) tell_all(SIGKILL);
    }
    show_output();
    for (Lines& lines : streams_) lines.show_rest();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw std::invalid_argument("standard output cannot be written");
    return code_;
  }

 private:
  static shm::File signals_as_file() {
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
    const Launch launch = fresh_launch();
    const Terminal terminal = terminal_of_stdout();
    for (int64_t rank = 0; rank < call_.ranks; ++rank) {
      const std::string before = in_colour_of(rank, terminal, "[" + std::to_string(rank) + "]") + " ";
      streams_.emplace_back(before, stdout);
      streams_.emplace_back(before, stderr);
      ranks_.push_back(start_rank(call_, launch, rank));
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
    poll(files.data(), files.size(), ending_since_ ? 100 : -1);
  }

  void show_output() {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].out && !streams_[2 * i].read_from(ranks_[i].out)) ranks_[i].out = shm::File();
      if (ranks_[i].err && !streams_[2 * i + 1].read_from(ranks_[i].err)) ranks_[i].err = shm::File();
    }
  }

  void pass_signals_on() const {
    signalfd_siginfo news{};
    while (read(signals_.get(), &news, sizeof(news)) == sizeof(news)) {
      if (news.ssi_signo != SIGCHLD) tell_all(static_cast<int>(news.ssi_signo));
    }
  }

  // What a rank leaves behind ends with it: its number is nobody else's until it is waited for.
  void reap() {
    for (RankProcess& rank : ranks_) {
      if (rank.pid < 0 || !has_ended(rank.pid)) continue;
      kill(-rank.pid, SIGTERM);
      int status = 0;
      waitpid(rank.pid, &status, 0);
      rank.pid = -1;
      if (status != 0) hear_of_failure(rank.rank, status);
    }
  }

  void hear_of_failure(int64_t rank, int status) {
    if (code_ == 0) code_ = code_of(status);
    if (ending_since_) return;
    const bool ends_others = !call_.keeps_going && is_any_alive();
    std::fprintf(stderr, "shardway launch: %s%s\n", sentence_of(rank, status).c_str(),
                 ends_others ? "; the others are ended" : "");
    if (!ends_others) return;
    ending_since_ = Clock::now();
    tell_all(SIGTERM);
    tell_all(SIGCONT);
  }

  const LaunchCall& call_;
  shm::File signals_;
  std::vector<RankProcess> ranks_;
  std::vector<Lines> streams_;  // two per rank
  std::optional<Clock::time_point> ending_since_;
  int code_ = 0;
};

}  // namespace

int supervise(const LaunchCall& call) { return Supervisor(call).run(); }

}  // namespace shardway::cli
