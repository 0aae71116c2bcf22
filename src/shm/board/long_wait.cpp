#include "shm/board/long_wait.h"

#include <atomic>

namespace shardway::shm {
namespace {

std::atomic<std::chrono::milliseconds> long_wait{std::chrono::seconds(10)};  // relaxed: nothing depends on it

}  // namespace

ThreadWaits& waits_of_thread() {
  thread_local ThreadWaits waits;
  return waits;
}

void notice_wait(std::chrono::nanoseconds waited) {
  if (waited < long_wait.load(std::memory_order_relaxed)) return;
  if (WatchedCall* call = waits_of_thread().call) call->tell_once(waited);
}

void set_long_wait(std::chrono::milliseconds wait) { long_wait.store(wait, std::memory_order_relaxed); }

}  // namespace shardway::shm
