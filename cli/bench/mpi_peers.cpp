#include "cli/bench/mpi_peers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "cli/bench/mpi_ranks_source.h"
#include "shm/memory/file.h"
#include "shm/memory/machine.h"

namespace shardway::cli {
namespace {

namespace fs = std::filesystem;
using PeerClock = std::chrono::steady_clock;

constexpr auto kMpiLook = std::chrono::milliseconds(50);
constexpr auto kMostSilence = std::chrono::seconds(120);  // of ranks, before they count as stuck
constexpr auto kTimeToEnd = std::chrono::seconds(20);

std::string program_on_path(const std::string& name) {
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string program = fs::path(folder) / name;
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return {};
}

// A folder that goes with this.
class ScratchFolder {
 public:
  ScratchFolder() : path_((fs::temp_directory_path() / "shardway-bench-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::system_error(errno, std::generic_category(), path_);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text << std::flush)) throw std::runtime_error(path + " cannot be written");
}

// A program that runs in a process group of its own. Ctrl-C on the terminal does not reach it.
class PeerProgram {
 public:
  PeerProgram(const std::vector<std::string>& words, const std::string& error_file) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    output_ = shm::File(ends[0]);
    const shm::File to(ends[1]);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid_ == 0) be(arguments.data(), to.get(), error_file.c_str());
  }
  PeerProgram(const PeerProgram&) = delete;
  PeerProgram& operator=(const PeerProgram&) = delete;
  ~PeerProgram() {
    if (pid_ == 0) return;
    kill(-pid_, SIGTERM);
    if (!has_ended_within(std::chrono::seconds(2))) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  // What it has printed since the last call, after a while at most; nothing at the end of its output.
  std::optional<std::string> printed() {
    pollfd ready{.fd = output_.get(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(kMpiLook.count())) <= 0) return "";
    std::array<char, 65536> text{};
    const ssize_t length = read(output_.get(), text.data(), text.size());
    if (length <= 0) return std::nullopt;
    return std::string(text.data(), static_cast<size_t>(length));
  }

  bool has_ended_within(std::chrono::seconds time) {
    for (const auto end = PeerClock::now() + time; pid_ != 0; usleep(1000)) {
      if (waitpid(pid_, &status_, WNOHANG) != 0) pid_ = 0;
      if (PeerClock::now() > end) break;
    }
    return pid_ == 0;
  }

  bool did_well() const { return WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }

 private:
  [[noreturn]] static void be(char** words, int output, const char* error_file) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)std::signal(SIGINT, SIG_DFL);
    (void)std::signal(SIGTERM, SIG_DFL);
    const int errors = open(error_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    execvp(words[0], words);
    constexpr int kNoSuchProgram = 127;
    _exit(kNoSuchProgram);
  }

  pid_t pid_ = 0;
  int status_ = 0;
  shm::File output_;
};

// The first line that has a letter: launchers frame what they say.
std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (std::any_of(line.begin(), line.end(), [](unsigned char c) { return std::isalpha(c) != 0; }))
      return line;
  }
  return "it says nothing";
}

std::string output_of(const std::vector<std::string>& words, const ScratchFolder& scratch) {
  PeerProgram program(words, scratch.file("errors"));
  std::string text;
  const auto end = PeerClock::now() + kMostSilence;
  for (auto more = program.printed(); more; more = program.printed()) {
    text += *more;
    if (PeerClock::now() > end) throw std::runtime_error(words[0] + " does not end");
  }
  if (!program.has_ended_within(kTimeToEnd) || !program.did_well())
    throw std::runtime_error(words[0] + ": " + first_line_of(scratch.file("errors")));
  return text;
}

std::string trial_lines(const std::vector<Trial>& trials, int64_t ranks) {
  std::string text;
  for (const Trial& trial : trials) {
    const int64_t elements = trial.bytes / kTrialItemBytes;
    text += std::string(name_of(trial.kind)) + " " + std::to_string(elements) + " " +
            std::to_string(kRepetitionsInATurn);
    for (const int64_t part : sizes_of(trial.parts, elements, ranks)) text += " " + std::to_string(part);
    text += '\n';
  }
  return text;
}

// Ranks move freely over the cores, as ours do, and give way where they share them.
std::vector<std::string> launch_words(const MpiPeer& peer, int64_t ranks, const ScratchFolder& scratch) {
  std::vector<std::string> words = {peer.launcher};
  if (output_of({peer.launcher, "--version"}, scratch).find("Open") != std::string::npos) {
    words.insert(words.end(), {"--bind-to", "none"});
    if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
    if (ranks > shm::usable_cores())
      words.insert(words.end(), {"--oversubscribe", "--mca", "mpi_yield_when_idle", "1"});
  }
  words.insert(words.end(), {"-n", std::to_string(ranks), scratch.file("ranks"), scratch.file("trials"),
                             scratch.file("stop"), std::to_string(ranks)});
  return words;
}

// What the ranks have printed, line by line.
class MpiLines {
 public:
  MpiLines(const std::vector<Trial>& trials, MpiResults& results) : trials_(trials), results_(results) {
    results.trials.us.resize(trials.size());
  }

  void add(const std::string& text) {
    rest_ += text;
    size_t begin = 0;
    for (size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1)
      add_line(rest_.substr(begin, end - begin));
    rest_.erase(0, begin);
  }

  bool has_begun() const { return !results_.library.empty(); }
  TrialProgress progress(double elapsed_s) const {
    return {.rounds = static_cast<int64_t>(made_ / a_round()),
            .of_round = static_cast<double>(made_ % a_round()) / static_cast<double>(a_round()),
            .elapsed_s = elapsed_s};
  }

 private:
  size_t a_round() const { return trials_.size() * kRepetitionsInATurn; }

  void add_line(const std::string& line) {
    if (!has_begun()) {
      results_.library = library_name(line);
      return;
    }
    std::istringstream words(line);
    size_t trial = 0;
    double us = 0;
    if (!(words >> trial >> us) || trial >= trials_.size())
      throw std::runtime_error("its ranks say something else than times: " + line);
    results_.trials.us[trial].push_back(us);
    ++made_;
  }

  const std::vector<Trial>& trials_;
  MpiResults& results_;
  std::string rest_;
  size_t made_ = 0;
};

bool has_measured_enough(const MpiResults& results, const TrialLimits& limits,
                         const TrialProgress& progress) {
  if (progress.rounds == 0) return false;
  if (progress.elapsed_s >= static_cast<double>(limits.time.count())) return true;
  return !limits.takes_whole_time && is_known_well(results.trials.us, progress.rounds);
}

MpiResults run_ranks(PeerProgram& program, const ScratchFolder& scratch, const std::vector<Trial>& trials,
                     const TrialLimits& limits, const TrialWatch& watch) {
  MpiResults results;
  MpiLines lines(trials, results);
  auto last_said = PeerClock::now();
  auto begin = last_said;
  bool is_stopping = false;
  for (auto text = program.printed(); text; text = program.printed()) {
    const bool had_begun = lines.has_begun();
    lines.add(*text);
    const auto now = PeerClock::now();
    if (!had_begun) begin = now;
    if (!text->empty()) last_said = now;
    if (now - last_said > (is_stopping ? std::chrono::seconds(kTimeToEnd) : kMostSilence))
      throw std::runtime_error("its ranks are stuck");
    const TrialProgress progress = lines.progress(std::chrono::duration<double>(now - begin).count());
    if (is_stopping) continue;
    const bool goes_on = watch(progress);
    if (goes_on && !has_measured_enough(results, limits, progress)) continue;
    is_stopping = true;
    results.trials.is_complete = goes_on;
    write_text(scratch.file("stop"), "");
  }
  return results;
}

}  // namespace

std::vector<MpiPeer> found_mpis(const std::string& folder) {
  if (!folder.empty()) {
    for (const std::string& place : {folder + "/bin", folder}) {
      const MpiPeer peer{.launcher = place + "/mpirun", .compiler = place + "/mpicc"};
      if (access(peer.launcher.c_str(), X_OK) == 0 && access(peer.compiler.c_str(), X_OK) == 0) return {peer};
    }
    throw std::invalid_argument("there are no mpirun and mpicc in it, nor in its bin");
  }
  std::vector<MpiPeer> peers;
  std::vector<fs::path> seen;
  for (const std::string which : {"", ".openmpi", ".mpich"}) {
    const MpiPeer peer{.launcher = program_on_path("mpirun" + which),
                       .compiler = program_on_path("mpicc" + which)};
    if (peer.launcher.empty() || peer.compiler.empty()) continue;
    std::error_code ignored;
    const fs::path launcher = fs::canonical(peer.launcher, ignored);
    if (std::find(seen.begin(), seen.end(), launcher) != seen.end()) continue;
    seen.push_back(launcher);
    peers.push_back(peer);
  }
  return peers;
}

std::string library_name(const std::string& said) {
  const size_t digit = said.find_first_of("0123456789");
  if (digit == std::string::npos) return said;
  const size_t end = std::min(said.find_first_not_of("0123456789.", digit), said.size());
  const std::string version = said.substr(digit, end - digit);
  for (const char* known : {"Open MPI", "MPICH", "Intel(R) MPI", "MVAPICH"}) {
    if (said.starts_with(known)) return std::string(known) + " " + version;
  }
  return said.substr(0, end);
}

MpiResults measure_mpi(const MpiPeer& peer, const std::vector<Trial>& trials, const TrialLimits& limits,
                       const TrialWatch& watch) {
  const ScratchFolder scratch;
  write_text(scratch.file("ranks.c"), kMpiRanksSource);
  output_of({peer.compiler, "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O2", "-o", scratch.file("ranks"),
             scratch.file("ranks.c")},
            scratch);
  write_text(scratch.file("trials"), trial_lines(trials, limits.ranks));
  PeerProgram program(launch_words(peer, limits.ranks, scratch), scratch.file("errors"));
  MpiResults results = run_ranks(program, scratch, trials, limits, watch);
  if (!program.has_ended_within(kTimeToEnd) || !program.did_well())
    throw std::runtime_error(first_line_of(scratch.file("errors")));
  return results;
}

}  // namespace shardway::cli
