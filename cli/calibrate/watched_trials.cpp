#include "cli/calibrate/watched_trials.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <stdexcept>

namespace shardway::cli {
namespace {

volatile std::sig_atomic_t was_interrupted = 0;

// The second signal ends the program as usual, and the ranks with it.
void listen_for_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { was_interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// One line on a terminal, rewritten as time goes by.
class ProgressLine {
 public:
  explicit ProgressLine(const TrialLimits& limits) : limits_(limits) {}
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() {
    if (is_shown_) std::fputs("\r\033[K", stderr);
  }

  void show(const TrialProgress& progress) {
    constexpr auto kPause = std::chrono::milliseconds(200);
    const auto now = std::chrono::steady_clock::now();
    if (!is_terminal_ || now < next_) return;
    next_ = now + kPause;
    const double left = static_cast<double>(limits_.time.count()) - progress.elapsed_s;
    std::fprintf(stderr, "\r\033[Kmeasuring with %lld ranks: %.0f %% of round %s, at most %.0f s left",
                 static_cast<long long>(limits_.ranks), 100 * progress.of_round,
                 std::to_string(progress.rounds + 1).c_str(), std::max(left, 0.0));
    is_shown_ = true;
  }

 private:
  const TrialLimits& limits_;
  bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  bool is_shown_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace

void watch_until_interrupted(const TrialLimits& limits,
                             const std::function<void(const TrialWatch&)>& measuring) {
  listen_for_interrupts();
  ProgressLine line(limits);
  measuring([&](const TrialProgress& progress) {
    line.show(progress);
    return was_interrupted == 0;
  });
}

TrialResults measure_until_interrupted(const std::vector<Trial>& trials, const TrialLimits& limits) {
  TrialResults results;
  try {
    watch_until_interrupted(limits,
                            [&](const TrialWatch& watch) { results = measure(trials, limits, watch); });
  } catch (const std::runtime_error& failure) {
    throw Refusal(failure.what());
  }
  return results;
}

std::string date_of_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  (void)std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace shardway::cli
