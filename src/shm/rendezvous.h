// File descriptors between the processes of one user on one host, over a Unix socket without a file.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "shm/arena.h"
#include "shm/file.h"
#include "shm/peer.h"

namespace shardway::shm {

// Hands this rank's arena and process handle to whoever asks and has the same user, while it lives.
class Doorway {
 public:
  explicit Doorway(const Arena& arena);
  ~Doorway();
  Doorway(const Doorway&) = delete;
  Doorway& operator=(const Doorway&) = delete;

  uint64_t name() const { return name_; }  // what peers need to find it

 private:
  void serve();

  const Arena& arena_;
  uint64_t name_;
  File listener_;
  File process_;
  File stop_;
  std::thread thread_;
};

// Asks at a peer's doorway. Throws std::runtime_error that says why it got nothing.
std::shared_ptr<Peer> call_at(uint64_t name, const Nonce& expected, std::chrono::milliseconds patience);

}  // namespace shardway::shm
