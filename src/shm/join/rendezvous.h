// Hands file descriptors between the ranks of a group on one host, over a Unix socket without a file.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "shm/memory/file.h"
#include "shm/memory/memory_file.h"

namespace shardway::shm {

// What a rank hands to its peers.
struct Handed {
  File arena;
  File process;  // readable once the rank's process has ended
  File memory;   // the group's; from rank 0 alone
};

// As long as it exists, hands this rank's files to every process of the same user that knows the secret.
// Anybody can see the socket, but only the ranks know the secret: they tell it one another through the
// exchange of their group. A visitor that says nothing keeps nobody waiting. It lets visitors in when its
// process has no descriptor left, too: it keeps a spare one.
class Doorway {
 public:
  // The caller keeps the files, and closes them.
  explicit Doorway(std::vector<int> files);
  ~Doorway();
  Doorway(const Doorway&) = delete;
  Doorway& operator=(const Doorway&) = delete;

  uint64_t name() const { return name_; }  // what peers need to find it, and to be let in
  const Nonce& secret() const { return secret_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Visitor {
    File connection;
    Clock::time_point until;
    std::array<std::byte, sizeof(Nonce)> said = {};
    size_t count = 0;
  };

  void serve();
  bool receive();
  File accepted();
  bool is_done_with(Visitor& visitor);

  std::vector<int> files_;
  uint64_t name_;
  Nonce secret_;
  File listener_;
  File stop_;
  File spare_;  // closed while a visitor needs its number
  std::vector<Visitor> visitors_;
  std::thread thread_;
};

// Asks for the files at a peer's doorway. Throws std::runtime_error that says why it got nothing.
Handed call_at(uint64_t name, const Nonce& secret, std::chrono::milliseconds patience);

}  // namespace shardway::shm
