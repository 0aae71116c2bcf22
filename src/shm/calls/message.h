// A message as it lies in its sender's memory. What a sender wrote is read here alone, and trusted nowhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_set>

namespace shardway::shm {

// What a message says of itself; the kind is the callers' own word, which both sides must give alike.
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
  uint64_t number = 0;  // messages of the chain before it
  Label label = {};
  std::span<const std::byte> bytes = {};  // in the sender's memory, where it may change them
};

// The messages of one sender to this rank, in order. A message is the sender's again once it is read and not
// held, and all before it are: then its memory may become another message's. So no honest chain leads to the
// message that was read last, or to one that is held.
class Chain {
 public:
  // The next one. The sender, whose memory this is, says that there are `sent`, and that the first lies at
  // `first`. Nothing when there is none yet. Throws BadHeader.
  std::optional<Message> next(std::span<const std::byte> memory, int64_t first, uint64_t sent);

  // Keeps the message that was read last in the sender's memory, until it is let go.
  void hold();
  void let_go(uint64_t number);

  // How many messages at the beginning are the sender's again.
  uint64_t done() const { return held_.empty() ? read_ : held_.front().number; }

 private:
  struct Held {
    uint64_t number;
    int64_t offset;
    bool is_held;
  };

  uint64_t read_ = 0;
  int64_t last_ = 0;                               // where the message lies that was read last
  std::deque<Held> held_ = {};                     // in order; those that were let go wait for those before
  std::unordered_set<int64_t> held_offsets_ = {};  // of these
};

}  // namespace shardway::shm
