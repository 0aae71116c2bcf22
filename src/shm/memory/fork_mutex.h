// A lock that a child of fork finds free, with what it guards whole.
#pragma once

#include <mutex>

namespace shardway::shm {

// fork waits until every such lock is free and holds it meanwhile: a thread that another process does not
// have cannot have left it locked there. For locks of the whole process, which are never destroyed; no thread
// may hold two of them at once.
class ForkMutex {
 public:
  ForkMutex();
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

}  // namespace shardway::shm
