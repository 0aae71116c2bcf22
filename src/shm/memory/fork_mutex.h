// A lock that a child of fork finds free, with intact data behind it.
#pragma once

#include <mutex>

namespace shardway::shm {

// fork waits until every such lock is free, and holds all of them meanwhile. So no thread that exists only in
// the parent can have left one locked in the child. Only for locks of the whole process, which are never
// destroyed. No thread may hold two of them at once.
//
// Make the owner of one while the library is loaded (`…_at_load`). fork also holds up a thread that makes
// one, and a child would wait for ever for a static object that its parent was making.
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
