// Counts the calls of a process group that go by messages, and says why there can be no more.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <mutex>
#include <string>

namespace shardway {

// All transports of a process group share one ledger, so that every rank counts alike.
class Ledger {
 public:
  // Returns the number of the next call. Throws c10::DistBackendError if the group is lost.
  uint64_t next() {
    check();
    const std::lock_guard lock(mutex_);
    return ++calls_;
  }

  // Throws c10::DistBackendError if the group is lost.
  void check() {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK_WITH(DistBackendError, why_lost_.empty(), "the group cannot be used any more: ", why_lost_);
  }

  // Marks the group as lost because a message did not arrive: a later one would be taken for it. The first
  // reason is kept.
  void lose(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (why_lost_.empty()) why_lost_ = why;
  }

 private:
  std::mutex mutex_;
  uint64_t calls_ = 0;
  std::string why_lost_;
};

}  // namespace shardway
