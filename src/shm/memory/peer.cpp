#include "shm/memory/peer.h"

#include <map>
#include <mutex>

#include "shm/memory/fork_mutex.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

// The peers that are mapped and the arenas of this process, by nonce. A child of fork starts with none: a
// mapping it inherited is its parent's to close.
class KnownPeers {
 public:
  static KnownPeers& instance() {
    static auto* known = new KnownPeers;  // never destroyed: groups may outlive the end of main
    return *known;
  }

  void announce(const std::shared_ptr<Arena>& arena) {
    const std::lock_guard lock(mutex_);
    std::erase_if(arenas_, [](const auto& entry) { return entry.second.expired(); });
    arenas_[{fork_generation(), arena->nonce()}] = arena;
  }

  std::shared_ptr<Peer> find(const Nonce& nonce) {
    const std::lock_guard lock(mutex_);
    const Key key{fork_generation(), nonce};
    if (auto known = alive(peers_, key)) return known;
    const auto arena = alive(arenas_, key);
    if (!arena) return nullptr;
    auto made = std::make_shared<Peer>(arena);
    peers_[key] = made;
    return made;
  }

  std::shared_ptr<Peer> add(const Nonce& nonce, std::shared_ptr<Peer> peer) {
    const std::lock_guard lock(mutex_);
    std::erase_if(peers_, [](const auto& entry) { return entry.second.expired(); });
    auto& entry = peers_[{fork_generation(), nonce}];
    if (auto first = entry.lock()) return first;
    entry = peer;
    return peer;
  }

 private:
  using Key = std::pair<uint64_t, Nonce>;

  template <class Kind>
  static std::shared_ptr<Kind> alive(const std::map<Key, std::weak_ptr<Kind>>& all, const Key& key) {
    const auto entry = all.find(key);
    return entry == all.end() ? nullptr : entry->second.lock();
  }

  ForkMutex mutex_;
  std::map<Key, std::weak_ptr<Peer>> peers_;
  std::map<Key, std::weak_ptr<Arena>> arenas_;
};

[[maybe_unused]] const KnownPeers& peers_at_load = KnownPeers::instance();

}  // namespace

Peer::Peer(const File& arena, File process, const Nonce& expected)
    : process_(std::move(process)),
      nonce_(expected),
      mapping_(map_of_peer(arena, Mapping::Access::read, expected)),
      base_(mapping_.data()),
      size_(mapping_.bytes()) {}

Peer::Peer(std::shared_ptr<Arena> arena)
    : process_(handle_of_process()),
      nonce_(arena->nonce()),
      arena_(std::move(arena)),
      base_(arena_->base()),
      size_(arena_->size()) {}

void Peer::announce(const std::shared_ptr<Arena>& arena) { KnownPeers::instance().announce(arena); }

std::shared_ptr<Peer> Peer::find(const Nonce& nonce) { return KnownPeers::instance().find(nonce); }

std::shared_ptr<Peer> Peer::remember(std::shared_ptr<Peer> peer) {
  const Nonce nonce = peer->nonce_;
  return KnownPeers::instance().add(nonce, std::move(peer));
}

}  // namespace shardway::shm
