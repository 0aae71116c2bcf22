#include "ranks/meeting.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <system_error>

namespace shardway::bench {

struct Meeting::Place {
  std::atomic<uint64_t> turn;
  alignas(64) std::atomic<int64_t> arrival_ns;
  alignas(64) std::byte block[kBlockBytes];
};

namespace {

constexpr int64_t kStartAfterNs = 1500;  // after the last rank has come: longer than all need to see it

// The cores that this process may use; it keeps one of them.
int64_t settle(int64_t rank) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
    throw std::system_error(errno, std::generic_category());
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &allowed)) cores.push_back(core);
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cores[static_cast<size_t>(rank) % cores.size()], &one);
  if (sched_setaffinity(0, sizeof(one), &one) != 0) throw std::system_error(errno, std::generic_category());
  return static_cast<int64_t>(cores.size());
}

}  // namespace

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

Meeting::Meeting(const std::string& path, int64_t rank, int64_t ranks)
    : rank_(rank), ranks_(ranks), has_core_each_(settle(rank) >= ranks) {
  static_assert(sizeof(Place) == 4096 && std::atomic<uint64_t>::is_always_lock_free);
  const auto bytes = static_cast<size_t>(ranks) * sizeof(Place);
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (page == MAP_FAILED) throw std::system_error(errno, std::generic_category(), path);
  places_ = static_cast<Place*>(page);
}

Meeting::~Meeting() { munmap(places_, static_cast<size_t>(ranks_) * sizeof(Place)); }

void Meeting::meet(const std::function<void()>& while_waiting) {
  ++turn_;
  places_[rank_].turn.store(turn_, std::memory_order_release);  // pairs with the acquire below, on the others
  for (int64_t peer = 0; peer < ranks_; ++peer) {
    while (places_[peer].turn.load(std::memory_order_acquire) < turn_) {
      if (while_waiting) while_waiting();
      if (!has_core_each_) sched_yield();
    }
  }
}

void Meeting::start_together() {
  places_[rank_].arrival_ns.store(now_ns(), std::memory_order_relaxed);  // ordered by the turn in meet
  meet();
  if (!has_core_each_) return;
  int64_t last = 0;
  for (int64_t peer = 0; peer < ranks_; ++peer) {
    last = std::max(last, places_[peer].arrival_ns.load(std::memory_order_relaxed));
  }
  while (now_ns() < last + kStartAfterNs) {
  }
}

std::vector<std::byte> Meeting::exchange(std::span<const std::byte> mine) {
  if (mine.size() > kBlockBytes) throw std::invalid_argument("a block is too long to be exchanged");
  std::memcpy(places_[rank_].block, mine.data(), mine.size());
  meet();
  std::vector<std::byte> all;
  for (int64_t peer = 0; peer < ranks_; ++peer) {
    all.insert(all.end(), places_[peer].block, places_[peer].block + mine.size());
  }
  meet();
  return all;
}

}  // namespace shardway::bench
