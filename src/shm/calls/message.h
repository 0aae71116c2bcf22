// A message as it lies in its sender's memory. What a sender wrote is read only here, and is never trusted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_set>

namespace shardway::shm {

// What a message says about itself. Only the callers know what the kind means; both sides must give the same.
struct Label {
  int64_t tag = 0;
  int64_t kind = 0;
};

// In the sender's arena, before the message's bytes.
struct alignas(64) MessageHead {
  std::atomic<int64_t> next;  // the message after it, released by send; 0 while there is none
  Label label;
  int64_t bytes;
};

// A head that was read and checked.
struct Message {
  uint64_t number = 0;  // how many messages of the chain come before it
  Label label = {};
  std::span<const std::byte> bytes = {};  // in the sender's memory, where the sender may change them
};

// The messages of one sender to this rank, in order. A message belongs to the sender again once it and all
// before it have been read and none of them is held. Then its memory may become another message's. So no
// honest chain leads to the message that was read last, or to one that is held.
class Chain {
 public:
  // Returns the next message, or nothing if there is none yet. The sender, whose memory this is, says that it
  // has sent `sent` messages and that the first lies at `first`. Throws BadHeader if that is invalid.
  std::optional<Message> next(std::span<const std::byte> memory, int64_t first, uint64_t sent);

  // Keeps the message that was read last in the sender's memory, until it is let go.
  void hold();
  void let_go(uint64_t number);

  // How many messages, counted from the first, belong to the sender again.
  uint64_t done() const { return held_.empty() ? read_ : held_.front().number; }

 private:
  struct Held {
    uint64_t number;
    int64_t offset;
    bool is_held;
  };

  uint64_t read_ = 0;
  int64_t last_ = 0;                               // where the message that was read last lies
  std::deque<Held> held_ = {};                     // in order; those that were let go wait for those before
  std::unordered_set<int64_t> held_offsets_ = {};  // of these
};

}  // namespace shardway::shm
