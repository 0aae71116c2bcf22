// Two ranks of shared memory, alive for a moment.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <system_error>

#include "cli/doctor/kernel_lines.h"
#include "shardway/shm.h"
#include "shm/memory/file.h"
#include "shm/memory/process.h"

namespace shardway::cli {
namespace {

using TrialClock = std::chrono::steady_clock;

constexpr int64_t kSlowUs = 200;  // a call of two ranks that each have a core takes about a microsecond

void write_all(int to, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(to, bytes.data(), bytes.size());
    if (count <= 0) throw std::system_error(errno, std::generic_category(), "write to the other rank");
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void read_all(int from, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = read(from, bytes.data(), bytes.size());
    if (count <= 0) throw std::runtime_error("the other rank ended");
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

// The blocks of both ranks, over a pair of sockets.
Exchange exchange_over(int socket, int64_t rank) {
  return [socket, rank](std::span<const std::byte> mine) {
    std::vector<std::byte> blocks(2 * mine.size());
    write_all(socket, mine);
    const std::span<std::byte> all(blocks);
    std::copy(mine.begin(), mine.end(), all.subspan(static_cast<size_t>(rank) * mine.size()).begin());
    read_all(socket, all.subspan(static_cast<size_t>(1 - rank) * mine.size(), mine.size()));
    return blocks;
  };
}

// Rank r gives r + 1 elements, then many; every value is known.
void check_values(const HostGroup& group) {
  const std::array<int64_t, 2> sizes = {1, 2};
  const std::vector<int64_t> mine(static_cast<size_t>(group.rank() + 1), 10 + group.rank());
  std::array<int64_t, 3> all{};
  group.all_gather_v<int64_t>(mine, all, sizes);
  if (all != std::array<int64_t, 3>{10, 11, 11}) throw std::runtime_error("a gather gave other values");
  constexpr size_t kMany = 1 << 18;
  std::vector<int64_t> many(kMany);
  std::iota(many.begin(), many.end(), group.rank());
  group.all_reduce<int64_t>(many, many);
  for (size_t i = 0; i < kMany; ++i) {
    if (many[i] != static_cast<int64_t>(2 * i + 1)) throw std::runtime_error("a sum gave other values");
  }
}

// The median time of a small call.
double call_us(const HostGroup& group) {
  std::array<double, 101> times{};
  int64_t value = 1;
  for (double& time : times) {
    const auto begin = TrialClock::now();
    group.all_reduce<int64_t>({&value, 1}, {&value, 1}, Combination::max);
    time = std::chrono::duration<double, std::micro>(TrialClock::now() - begin).count();
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

// In a process of its own: says "ok" and a time, or why not, and ends.
[[noreturn]] void be_rank(int64_t rank, int socket, int report, std::chrono::milliseconds limit) {
  setenv("SHARDWAY_QUIET", "1", 1);  // NOLINT(concurrency-mt-unsafe): this process has one thread
  std::string text;
  try {
    const HostGroup group =
        HostGroup::join({.rank = rank, .size = 2, .exchange = exchange_over(socket, rank), .timeout = limit});
    check_values(group);
    text = "ok " + std::to_string(call_us(group));
  } catch (const std::exception& error) {
    text = error.what();
  }
  (void)!write(report, text.data(), text.size());
  _exit(0);
}

// What a rank says within the time that is left, or that it says nothing.
std::string said_within(int from, TrialClock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - TrialClock::now()).count();
  pollfd asked{.fd = from, .events = POLLIN, .revents = 0};
  if (poll(&asked, 1, static_cast<int>(std::max<int64_t>(left, 0))) != 1) return "it did not finish in time";
  std::array<char, 512> text{};
  const ssize_t count = read(from, text.data(), text.size());
  return count <= 0 ? "it ended without a word" : std::string(text.data(), static_cast<size_t>(count));
}

struct PairOfFiles {
  shm::File first;
  shm::File second;
};

PairOfFiles connected_pair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  return {shm::File(ends[0]), shm::File(ends[1])};
}

// The two ranks of the trial, ended with it.
class TwoRanks {
 public:
  explicit TwoRanks(std::chrono::milliseconds limit) {
    for (int rank = 0; rank < 2; ++rank) {
      pids_[rank] = fork();
      if (pids_[rank] < 0) throw std::system_error(errno, std::generic_category(), "fork");
      if (pids_[rank] != 0) continue;
      const shm::File& other = rank == 0 ? between_.second : between_.first;
      close(other.get());  // so each notices the end of the other
      be_rank(rank, (rank == 0 ? between_.first : between_.second).get(), reports_[rank].second.get(), limit);
    }
    between_ = {};
    for (PairOfFiles& report : reports_) report.second = shm::File();
  }

  TwoRanks(const TwoRanks&) = delete;
  TwoRanks& operator=(const TwoRanks&) = delete;

  ~TwoRanks() {
    for (const pid_t pid : pids_) {
      if (pid <= 0) continue;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  std::string said_by(int rank, TrialClock::time_point deadline) const {
    return said_within(reports_[rank].first.get(), deadline);
  }

 private:
  PairOfFiles between_ = connected_pair();
  std::array<PairOfFiles, 2> reports_ = {connected_pair(), connected_pair()};
  std::array<pid_t, 2> pids_ = {};
};

constexpr const char* kAdvice =
    "groups of this host use their own engine instead, which is slower; the lines above say what the kernel "
    "refuses";

DoctorLine trial(std::chrono::milliseconds limit) {
  DoctorLine line{.subject = "shared memory"};
  const TwoRanks ranks(limit);
  const auto deadline = TrialClock::now() + limit;
  for (int rank = 0; rank < 2; ++rank) {
    const std::string said = ranks.said_by(rank, deadline);
    double us = 0;
    if (std::sscanf(said.c_str(), "ok %lf", &us) != 1)
      return {.subject = line.subject,
              .health = Health::broken,
              .what = "rank " + std::to_string(rank) + " of two: " + said,
              .advice = kAdvice};
    std::array<char, 96> text{};
    (void)std::snprintf(text.data(), text.size(), "two ranks exchanged values; a small call takes %.1f us",
                        us);
    line.what = text.data();
    if (us < kSlowUs) continue;
    line.health = Health::slow;
    line.advice = "the ranks wait for cores: look at what else runs here (top), and at the line 'cores'";
  }
  return line;
}

}  // namespace

DoctorLine shared_memory_line(std::chrono::milliseconds limit) {
  try {
    return trial(limit);
  } catch (const std::exception& error) {
    return {.subject = "shared memory", .health = Health::broken, .what = error.what(), .advice = kAdvice};
  }
}

}  // namespace shardway::cli
