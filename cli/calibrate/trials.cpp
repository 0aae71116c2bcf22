#include "cli/calibrate/trials.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "cli/calibrate/trial_board.h"
#include "cli/calibrate/trial_rank.h"

namespace shardway::cli {
namespace {

using StarterClock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(20);

// Named after this process and this moment.
std::string fresh_job() {
  return "calibrate-" + std::to_string(getpid()) + "-" +
         std::to_string(StarterClock::now().time_since_epoch().count());
}

// Of the clock that the ranks use; 0 as long as it has not begun.
double seconds_since(int64_t begun_ns) {
  const std::chrono::duration<double> now = StarterClock::now().time_since_epoch();
  return begun_ns == 0 ? 0 : now.count() - static_cast<double>(begun_ns) * 1e-9;
}

// The ranks, ended with this at the latest.
class TrialProcesses {
 public:
  TrialProcesses(const std::vector<Trial>& trials, const TrialLimits& limits, const TrialBoard& board) {
    const std::string job = fresh_job();
    const pid_t starter = getpid();
    for (int64_t rank = 0; rank < limits.ranks; ++rank) {
      const pid_t pid = fork();
      if (pid < 0) {
        const int reason = errno;
        end_all();
        throw std::runtime_error("rank " + std::to_string(rank) + " of " + std::to_string(limits.ranks) +
                                 " cannot be started: " + std::generic_category().message(reason));
      }
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != starter) _exit(1);
        (void)std::signal(SIGINT, SIG_IGN);  // the starter is interrupted, and ends the ranks in order
        (void)std::signal(SIGTERM, SIG_DFL);
        be_trial_rank(rank, job, trials, limits, board);
      }
      pids_.push_back(pid);
    }
  }
  TrialProcesses(const TrialProcesses&) = delete;
  TrialProcesses& operator=(const TrialProcesses&) = delete;
  ~TrialProcesses() { end_all(); }

  // Takes note of the ranks that have ended. Throws std::runtime_error if one of them ended badly.
  bool are_running(const TrialBoard& board) {
    bool runs = false;
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      if (pids_[rank] == 0) continue;
      int status = 0;
      if (waitpid(pids_[rank], &status, WNOHANG) == 0) {
        runs = true;
        continue;
      }
      pids_[rank] = 0;
      if (WIFSIGNALED(status))
        throw std::runtime_error("rank " + std::to_string(rank) + " was ended by signal " +
                                 std::to_string(WTERMSIG(status)));
      if (WEXITSTATUS(status) != 0)
        throw std::runtime_error("rank " + std::to_string(board.words().failed_rank.load()) + ": " +
                                 board.words().why.data());
    }
    return runs;
  }

 private:
  void end_all() {
    for (pid_t& pid : pids_) {
      if (pid == 0) continue;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      pid = 0;
    }
  }

  std::vector<pid_t> pids_;
};

}  // namespace

TrialResults measure(const std::vector<Trial>& trials, const TrialLimits& limits, const TrialWatch& watch) {
  const TrialBoard board(static_cast<size_t>(limits.ranks), trials.size());
  TrialResults results;
  const auto count = static_cast<int64_t>(trials.size());
  TrialProcesses ranks(trials, limits, board);
  while (ranks.are_running(board)) {
    const int64_t made = board.words().trials_made.load(std::memory_order_relaxed);
    const TrialProgress progress{
        .rounds = made / count,
        .of_round = static_cast<double>(made % count) / static_cast<double>(count),
        .elapsed_s = seconds_since(board.words().begun_ns.load(std::memory_order_relaxed))};
    if (results.is_complete && !watch(progress)) {
      results.is_complete = false;
      board.words().must_stop.store(true, std::memory_order_relaxed);
    }
    std::this_thread::sleep_for(kLook);
  }
  for (size_t i = 0; i < trials.size(); ++i) results.us.push_back(board.repetitions_of(i));
  return results;
}

}  // namespace shardway::cli
