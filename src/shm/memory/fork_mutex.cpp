#include "shm/memory/fork_mutex.h"

#include <pthread.h>

#include <vector>

namespace shardway::shm {
namespace {

struct Registered {
  std::mutex mutex;
  std::vector<ForkMutex*> all;

  static Registered& instance() {
    static auto* registered = new Registered;  // never destroyed: a thread may fork after the end of main
    return *registered;
  }
};

void lock_all() {
  Registered& registered = Registered::instance();
  registered.mutex.lock();
  for (ForkMutex* mutex : registered.all) mutex->lock();
}

void unlock_all() {
  Registered& registered = Registered::instance();
  for (ForkMutex* mutex : registered.all) mutex->unlock();
  registered.mutex.unlock();
}

}  // namespace

ForkMutex::ForkMutex() {
  static const int handlers = pthread_atfork(lock_all, unlock_all, unlock_all);
  (void)handlers;
  Registered& registered = Registered::instance();
  const std::lock_guard lock(registered.mutex);
  registered.all.push_back(this);
}

}  // namespace shardway::shm
