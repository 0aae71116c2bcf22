#include "shm/peer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "shm/process.h"

namespace shardway::shm {
namespace {

// The peers that are mapped and the arenas of this process, by nonce. A child of fork starts with none: a
// mapping it inherited is its parent's to close.
class Known {
 public:
  static Known& instance() {
    static auto* known = new Known;  // never destroyed: groups may outlive the end of main
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

  std::mutex mutex_;
  std::map<Key, std::weak_ptr<Peer>> peers_;
  std::map<Key, std::weak_ptr<Arena>> arenas_;
};

}  // namespace

Peer::Peer(const File& arena, File process, pid_t pid, const Nonce& expected)
    : process_(std::move(process)), pid_(pid), nonce_(expected) {
  struct stat status {};
  if (fstat(arena.get(), &status) != 0) throw std::system_error(errno, std::generic_category(), "fstat");
  if ((fcntl(arena.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0)
    throw std::runtime_error("the peer's memory could shrink");
  size_ = status.st_size;
  if (size_ < static_cast<int64_t>(sizeof(ArenaHead))) throw std::runtime_error("the peer's memory is empty");
  void* base =
      mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED | MAP_NORESERVE, arena.get(), 0);
  if (base == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap of a peer's memory");
  base_ = static_cast<const std::byte*>(base);
  if (reinterpret_cast<const ArenaHead*>(base_)->nonce != expected) {
    munmap(base, static_cast<size_t>(size_));
    throw std::runtime_error("the memory is another rank's");
  }
}

Peer::Peer(std::shared_ptr<Arena> arena)
    : process_(handle_of_process()),
      pid_(getpid()),
      nonce_(arena->nonce()),
      arena_(std::move(arena)),
      base_(arena_->base()),
      size_(arena_->size()) {}

Peer::~Peer() {
  if (!arena_) munmap(const_cast<std::byte*>(base_), static_cast<size_t>(size_));
}

bool Peer::let_write(int64_t offset, int64_t bytes, bool may_write) {
  if (arena_) return true;
  const std::lock_guard lock(mutex_);
  const int64_t others = may_write ? writers_[offset]++ : --writers_[offset];
  if (others > 0) return true;
  if (!may_write) writers_.erase(offset);
  std::byte* pages = const_cast<std::byte*>(base_) + offset;
  return mprotect(pages, static_cast<size_t>(bytes), may_write ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
}

void Peer::announce(const std::shared_ptr<Arena>& arena) { Known::instance().announce(arena); }

std::shared_ptr<Peer> Peer::find(const Nonce& nonce) { return Known::instance().find(nonce); }

std::shared_ptr<Peer> Peer::remember(std::shared_ptr<Peer> peer) {
  const Nonce nonce = peer->nonce_;
  return Known::instance().add(nonce, std::move(peer));
}

}  // namespace shardway::shm
