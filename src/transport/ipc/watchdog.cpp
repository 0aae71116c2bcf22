#include "transport/ipc/watchdog.h"

#include <chrono>

namespace shardway {
namespace {

constexpr std::chrono::milliseconds kLookEvery{10};

}  // namespace

Watchdog::Watchdog(const shm::SharedGroup& group, const cuda::Flags& flags) : group_(group), flags_(flags) {
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  ends_.store(true, std::memory_order_relaxed);
  thread_.join();
}

std::optional<int64_t> Watchdog::gone() const {
  const int64_t rank = gone_.load(std::memory_order_relaxed);
  return rank >= 0 ? std::optional(rank) : std::nullopt;
}

void Watchdog::watch() {
  while (!ends_.load(std::memory_order_relaxed)) {
    for (int64_t peer = 0; peer < group_.size(); ++peer) {
      if (peer == group_.rank() || !group_.is_over_for(peer)) continue;
      if (!gone()) gone_.store(peer, std::memory_order_relaxed);
      flags_.release(peer, expected_.load(std::memory_order_relaxed));
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace shardway
