#include "shm/board/retired.h"

#include <list>
#include <mutex>

#include "shm/memory/fork_mutex.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

struct Retired {
  Remains remains;
  uint64_t generation = fork_generation();

  bool is_over() const {
    const Waiting& waiting = *remains.waiting;
    for (int64_t peer = 0; peer < waiting.size(); ++peer) {
      if (peer == waiting.rank() || remains.memory->is_gone(peer)) continue;
      if (!has_ended(waiting.peer(peer).process())) return false;
    }
    return true;
  }

  void free() const {
    remains.arena->free(remains.waiting->own().data());
    for (std::byte* message : remains.messages) remains.arena->free(message);
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

[[maybe_unused]] const Graveyard& graveyard_at_load = Graveyard::instance();

}  // namespace

void retire(Remains remains) {
  remains.memory->say_gone(remains.waiting->rank());
  Graveyard::instance().add({.remains = std::move(remains)});
  sweep_retired();
}

void sweep_retired() { Graveyard::instance().sweep(); }

}  // namespace shardway::shm
