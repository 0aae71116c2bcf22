#include "rank_runner.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace shardway::testing {
namespace {

constexpr size_t kBlock = 4096;
constexpr size_t kText = 1024;

// Memory in which ranks, threads or processes, lay down blocks and wait for one another.
class Table {
 public:
  explicit Table(int64_t ranks) : ranks_(ranks) {
    void* data = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::runtime_error("mmap");
    data_ = static_cast<std::byte*>(data);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier(), &shared, static_cast<unsigned>(ranks));
  }
  ~Table() { munmap(data_, bytes()); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  shm::Exchange exchange(int64_t rank) {
    return [this, rank](std::span<const std::byte> mine) {
      if (mine.size() > kBlock) throw std::length_error("a block of the exchange is too long");
      std::memcpy(block(rank), mine.data(), mine.size());
      pthread_barrier_wait(barrier());
      std::vector<std::byte> all;
      for (int64_t peer = 0; peer < ranks_; ++peer)
        all.insert(all.end(), block(peer), block(peer) + mine.size());
      pthread_barrier_wait(barrier());
      return all;
    };
  }

  char* text(int64_t rank) {
    return reinterpret_cast<char*>(data_) + kBlock * static_cast<size_t>(ranks_ + 1) +
           kText * static_cast<size_t>(rank);
  }

 private:
  size_t bytes() const { return (kBlock + kText) * static_cast<size_t>(ranks_ + 1); }
  pthread_barrier_t* barrier() { return reinterpret_cast<pthread_barrier_t*>(data_); }
  std::byte* block(int64_t rank) { return data_ + kBlock * static_cast<size_t>(rank + 1); }

  int64_t ranks_;
  std::byte* data_ = nullptr;
};

std::shared_ptr<shm::Group> joined(int64_t rank, int64_t ranks, const shm::Exchange& exchange,
                                   const RunOptions& options) {
  shm::Joined joined = shm::Group::join({.rank = rank,
                                         .size = ranks,
                                         .exchange = exchange,
                                         .arena = shm::Arena::create(options.arena_bytes),
                                         .timeout = options.timeout,
                                         .ways = options.ways});
  if (!joined.group) throw std::runtime_error("no group: " + joined.why_not);
  return joined.group;
}

[[noreturn]] void be_a_rank(char* text, const std::function<void()>& body) {
  int status = 0;
  try {
    body();
  } catch (const std::exception& error) {
    std::strncpy(text, error.what(), kText - 1);
    status = 1;
  }
  _exit(status);
}

std::string ending_of(pid_t child, const char* text) {
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) == 0) return {};
  return *text != '\0' ? text : "status " + std::to_string(WEXITSTATUS(status));
}

Endings fork_ranks(int64_t ranks, Table& table, const std::function<void(int64_t)>& body) {
  std::vector<pid_t> children;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) be_a_rank(table.text(rank), [&] { body(rank); });
    children.push_back(child);
  }
  Endings endings;
  for (size_t rank = 0; rank < children.size(); ++rank)
    endings.push_back(ending_of(children[rank], table.text(static_cast<int64_t>(rank))));
  return endings;
}

}  // namespace

void run_threads(int64_t ranks, const RankBody& body, const RunOptions& options) {
  Table table(ranks);
  std::mutex mutex;
  std::exception_ptr first_failure;
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto group = joined(rank, ranks, table.exchange(rank), options);
        body(*group);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first_failure) first_failure = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first_failure) std::rethrow_exception(first_failure);
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

}  // namespace shardway::testing
