// Keeps streams from waiting for ranks that are gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>

#include "cuda/flags.h"
#include "shm/group/group.h"

namespace shardway {

// A thread that looks at the peers' processes while it lives. If one is gone, or says that the group is over,
// the thread writes the peer's flags in its place, again and again: what the peer has queued may still be
// written.
class Watchdog {
 public:
  // The group and the flags must outlive this object.
  Watchdog(const shm::SharedGroup& group, const cuda::Flags& flags);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From now on streams may wait for this value of a flag.
  void expect(uint32_t value) { expected_.store(value, std::memory_order_relaxed); }

  // Any thread may ask for the peer that is gone: what was received after that is undefined.
  std::optional<int64_t> gone() const;

 private:
  void watch();

  const shm::SharedGroup& group_;
  const cuda::Flags& flags_;
  std::atomic<uint32_t> expected_ = 0;  // relaxed: the thread looks again
  std::atomic<int64_t> gone_ = -1;      // relaxed: nothing else is handed over by it
  std::atomic<bool> ends_ = false;      // relaxed: the thread is joined
  std::thread thread_;
};

}  // namespace shardway
