#include "transport/group/joined.h"

#include <atomic>
#include <mutex>

#include "shm/memory/fork_mutex.h"

namespace shardway {
namespace {

struct JoinedWorlds {
  shm::ForkMutex mutex;
  std::vector<std::weak_ptr<Transport>> worlds;
  std::atomic<size_t> count{0};  // of `worlds`

  static JoinedWorlds& instance() {
    static auto* joined = new JoinedWorlds;  // never destroyed: calls may outlive the end of main
    return *joined;
  }
};

[[maybe_unused]] const JoinedWorlds& joined_at_load = JoinedWorlds::instance();

}  // namespace

void remember_joined(const std::shared_ptr<Transport>& world) {
  JoinedWorlds& joined = JoinedWorlds::instance();
  const std::lock_guard lock(joined.mutex);
  std::erase_if(joined.worlds, [](const auto& entry) { return entry.expired(); });
  joined.worlds.push_back(world);
  // Relaxed is enough: whatever makes another thread call after this one has joined orders that call after
  // this store.
  joined.count.store(joined.worlds.size(), std::memory_order_relaxed);
}

std::vector<std::shared_ptr<Transport>> joined_worlds() {
  std::vector<std::shared_ptr<Transport>> held;
  JoinedWorlds& joined = JoinedWorlds::instance();
  if (joined.count.load(std::memory_order_relaxed) == 0) return held;
  const std::lock_guard lock(joined.mutex);
  for (const auto& entry : joined.worlds) {
    if (auto world = entry.lock()) held.push_back(std::move(world));
  }
  return held;
}

}  // namespace shardway
