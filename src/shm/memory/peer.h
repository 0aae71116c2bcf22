// A peer's arena and process, as this rank sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "shm/memory/arena.h"
#include "shm/memory/file.h"

namespace shardway::shm {

// All of a peer's arena, read-only, and a handle of its process. Groups with the same peer share one. If the
// peer is a thread of this process, the arena is read in its owner's own mapping.
class Peer {
 public:
  explicit Peer(std::shared_ptr<Arena> arena);

  // Maps the arena as map_of_peer does.
  Peer(const File& arena, File process, const Nonce& expected);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Lets other threads of this process find the arena, as long as it exists.
  static void announce(const std::shared_ptr<Arena>& arena);

  // find returns the peer that is mapped already, or whose arena was announced, or null. remember lets find
  // return this peer; if another thread was first, it returns that thread's.
  static std::shared_ptr<Peer> find(const Nonce& nonce);
  static std::shared_ptr<Peer> remember(std::shared_ptr<Peer> peer);

  const std::byte* base() const { return base_; }
  std::span<const std::byte> arena() const { return {base_, static_cast<size_t>(size_)}; }

  // Whether [offset, offset + bytes) lies in the arena, whatever the numbers are.
  bool holds(int64_t offset, int64_t bytes) const { return lies_within(size_, offset, bytes); }

  const File& process() const { return process_; }  // readable once the process has ended

 private:
  File process_;
  Nonce nonce_;
  std::shared_ptr<Arena> arena_ = nullptr;  // if it is this process's; null: another's, mapped here
  Mapping mapping_ = {};
  const std::byte* base_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace shardway::shm
