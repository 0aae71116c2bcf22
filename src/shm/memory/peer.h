// A peer's arena and process, as this rank sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "shm/memory/arena.h"
#include "shm/memory/file.h"

namespace shardway::shm {

// All of a peer's arena, read-only, and a handle of its process. Groups with the same peer share one. Where
// the peer is a thread of this process, the arena is seen where its owner sees it.
class Peer {
 public:
  explicit Peer(std::shared_ptr<Arena> arena);

  // As map_of_peer does it.
  Peer(const File& arena, File process, const Nonce& expected);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Lets other threads of this process find the arena, for as long as it is.
  static void announce(const std::shared_ptr<Arena>& arena);

  // The one that is mapped already, or announced, if any.
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
  std::shared_ptr<Arena> arena_ = nullptr;  // of this process; null: another's, mapped here
  Mapping mapping_ = {};
  const std::byte* base_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace shardway::shm
