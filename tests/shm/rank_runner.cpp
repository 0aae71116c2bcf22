#include "rank_runner.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <numeric>
#include <stdexcept>
#include <thread>

namespace shardway::testing {
namespace {

constexpr size_t kBlock = 4096;
constexpr size_t kText = 1024;
constexpr int64_t kMostRanks = 8;
constexpr auto kLimit = std::chrono::seconds(100);  // for one run of processes; ctest ends the program at 120

// Memory in which ranks, threads or processes, lay down blocks and wait for one another.
class Table {
 public:
  explicit Table(int64_t ranks) : ranks_(ranks) {
    if (ranks > kMostRanks) throw std::invalid_argument("the table has no place for so many ranks");
    void* data = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::runtime_error("mmap");
    data_ = static_cast<std::byte*>(data);
    new (data_) Desk{};
  }
  ~Table() { munmap(data_, bytes()); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  shm::Exchange exchange(int64_t rank, const std::vector<int64_t>& members) {
    return [this, rank, members](std::span<const std::byte> mine) {
      if (mine.size() > kBlock) throw std::length_error("a block of the exchange is too long");
      std::memcpy(block(rank), mine.data(), mine.size());
      meet(members);
      std::vector<std::byte> all;
      for (const int64_t peer : members) all.insert(all.end(), block(peer), block(peer) + mine.size());
      meet(members);
      return all;
    };
  }
  shm::Exchange exchange(int64_t rank) {
    std::vector<int64_t> all(static_cast<size_t>(ranks_));
    std::iota(all.begin(), all.end(), 0);
    return exchange(rank, all);
  }

  // Nobody is to wait for this rank any more.
  void see_end_of(int64_t rank) { desk().ended.fetch_or(1U << rank); }

  char* text(int64_t rank) {
    return reinterpret_cast<char*>(block(ranks_)) + kText * static_cast<size_t>(rank);
  }

 private:
  struct Meeting {
    std::atomic<uint32_t> arrived;
    std::atomic<uint32_t> past;  // meetings of these ranks that all have come to
  };
  struct Desk {
    std::atomic<uint32_t> ended;                     // a bit per rank
    std::array<Meeting, 1U << kMostRanks> meetings;  // by the bits of the ranks that meet
  };

  void meet(const std::vector<int64_t>& members) {
    uint32_t bits = 0;
    for (const int64_t member : members) bits |= 1U << member;
    Meeting& meeting = desk().meetings[bits];
    const uint32_t before = meeting.past.load();
    if (meeting.arrived.fetch_add(1) + 1 == members.size()) {
      meeting.arrived.store(0);
      meeting.past.fetch_add(1);
      return;
    }
    for (int look = 0; meeting.past.load() == before; ++look) {
      const bool is_over = (desk().ended.load() & bits) != 0;  // read before the meeting's number once more
      if (is_over && meeting.past.load() == before)
        throw std::runtime_error("a rank ended before the exchange");
      if (look < 100) {
        sched_yield();
      } else {
        usleep(50);
      }
    }
  }

  size_t bytes() const { return sizeof(Desk) + (kBlock + kText) * static_cast<size_t>(ranks_); }
  Desk& desk() { return *reinterpret_cast<Desk*>(data_); }
  std::byte* block(int64_t rank) { return data_ + sizeof(Desk) + kBlock * static_cast<size_t>(rank); }

  int64_t ranks_;
  std::byte* data_ = nullptr;
};

std::shared_ptr<shm::SharedGroup> joined(int64_t rank, int64_t ranks, const shm::Exchange& exchange,
                                         const RunOptions& options) {
  shm::JoinedGroup joined = shm::SharedGroup::join({.rank = rank,
                                                    .size = ranks,
                                                    .exchange = exchange,
                                                    .arena = shm::Arena::create(options.arena_bytes),
                                                    .timeout = options.timeout,
                                                    .tuning = options.tuning});
  if (!joined.group) throw std::runtime_error("no group: " + joined.why_not);
  return joined.group;
}

[[noreturn]] void be_a_rank(char* text, const std::function<void()>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that runs out of time leaves no rank behind
  int status = 0;
  try {
    body();
  } catch (const std::exception& error) {
    std::strncpy(text, error.what(), kText - 1);
    status = 1;
  }
  _exit(status);
}

std::string ending_of(int status, const char* text) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) == 0) return {};
  return *text != '\0' ? text : "status " + std::to_string(WEXITSTATUS(status));
}

// The endings of the ranks, in whatever order they come.
Endings await(std::vector<pid_t> children, Table& table) {
  Endings endings(children.size());
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  for (size_t alive = children.size(); alive > 0; usleep(500)) {
    const bool is_late = std::chrono::steady_clock::now() > deadline;
    for (size_t rank = 0; rank < children.size(); ++rank) {
      int status = 0;
      if (children[rank] <= 0) continue;
      if (is_late) kill(children[rank], SIGKILL);
      if (waitpid(children[rank], &status, is_late ? 0 : WNOHANG) == 0) continue;
      endings[rank] =
          is_late ? "it did not end in time" : ending_of(status, table.text(static_cast<int64_t>(rank)));
      table.see_end_of(static_cast<int64_t>(rank));
      children[rank] = 0;
      --alive;
    }
  }
  return endings;
}

Endings fork_ranks(int64_t ranks, Table& table, const std::function<void(int64_t)>& body) {
  std::vector<pid_t> children;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) be_a_rank(table.text(rank), [&] { body(rank); });
    children.push_back(child);
  }
  return await(std::move(children), table);
}

void start_threads(int64_t ranks, Table& table, const std::function<void(int64_t)>& body) {
  std::mutex mutex;
  std::exception_ptr first_failure;
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first_failure) first_failure = std::current_exception();
      }
      table.see_end_of(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first_failure) std::rethrow_exception(first_failure);
}

ExchangeAmong exchange_among(Table& table, int64_t rank) {
  return [&table, rank](const std::vector<int64_t>& members) { return table.exchange(rank, members); };
}

}  // namespace

void run_threads(int64_t ranks, const RankBody& body, const RunOptions& options) {
  Table table(ranks);
  start_threads(ranks, table, [&](int64_t rank) {
    const auto group = joined(rank, ranks, table.exchange(rank), options);
    body(*group);
  });
}

Endings run_processes(int64_t ranks, const RankBody& body, const RunOptions& options) {
  Table table(ranks);
  return fork_ranks(ranks, table, [&](int64_t rank) {
    const auto group = joined(rank, ranks, table.exchange(rank), options);
    body(*group);
  });
}

Endings run_unjoined(int64_t ranks, const std::function<void(int64_t rank, const shm::Exchange&)>& body) {
  Table table(ranks);
  return fork_ranks(ranks, table, [&](int64_t rank) { body(rank, table.exchange(rank)); });
}

Endings run_processes_apart(int64_t ranks, const RankApart& body) {
  Table table(ranks);
  return fork_ranks(ranks, table, [&](int64_t rank) { body(rank, exchange_among(table, rank)); });
}

void run_threads_apart(int64_t ranks, const RankApart& body) {
  Table table(ranks);
  start_threads(ranks, table, [&](int64_t rank) { body(rank, exchange_among(table, rank)); });
}

}  // namespace shardway::testing
