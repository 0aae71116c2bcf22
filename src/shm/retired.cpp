#include "shm/retired.h"

#include <poll.h>

#include <list>
#include <mutex>

#include "shm/fork_mutex.h"
#include "shm/process.h"

namespace shardway::shm {
namespace {

struct Retired {
  std::shared_ptr<Arena> arena;
  std::unique_ptr<Waiting> waiting;
  std::vector<std::byte*> messages;
  uint64_t generation = fork_generation();

  bool is_over() const {
    for (int64_t peer = 0; peer < waiting->size(); ++peer) {
      if (peer == waiting->rank() || waiting->ended(peer).how != End::none) continue;
      pollfd process{.fd = waiting->peer(peer).process().get(), .events = POLLIN, .revents = 0};
      if (poll(&process, 1, 0) <= 0) return false;
    }
    return true;
  }

  void free() const {
    // A peer that looks later finds no board of the group, and knows that this rank has left.
    waiting->own().head().group.store(0, std::memory_order_release);
    arena->free(waiting->own().data());
    for (std::byte* message : messages) arena->free(message);
  }
};

class Graveyard {
 public:
  static Graveyard& instance() {
    static auto* graveyard = new Graveyard;  // never destroyed: groups may outlive the end of main
    return *graveyard;
  }

  void add(Retired retired) {
    const std::lock_guard lock(mutex_);
    retired_.push_back(std::move(retired));
  }

  void sweep() {
    const std::lock_guard lock(mutex_);
    for (auto entry = retired_.begin(); entry != retired_.end();) {
      const bool is_own = entry->generation == fork_generation();
      if (is_own && !entry->is_over()) {
        ++entry;
        continue;
      }
      if (is_own) entry->free();
      entry = retired_.erase(entry);
    }
  }

 private:
  ForkMutex mutex_;
  std::list<Retired> retired_;
};

}  // namespace

void retire(std::shared_ptr<Arena> arena, std::unique_ptr<Waiting> waiting,
            std::vector<std::byte*> messages) {
  Graveyard::instance().add(
      {.arena = std::move(arena), .waiting = std::move(waiting), .messages = std::move(messages)});
  sweep_retired();
}

void sweep_retired() { Graveyard::instance().sweep(); }

}  // namespace shardway::shm
