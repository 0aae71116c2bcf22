// Messages between two ranks of a group, outside its collectives.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shm/board/waiting.h"
#include "shm/calls/message.h"
#include "shm/memory/arena.h"

namespace shardway::shm {

// A message that a rank asked for.
struct Receipt {
  std::optional<int64_t> from = std::nullopt;  // without: from anybody
  Label label = {};
  std::span<std::byte> to = {};
  std::shared_ptr<const void> owner = nullptr;  // of that memory

  bool is_done = false;
  bool is_given_up = false;
  int64_t sender = -1;
  int64_t sent_bytes = -1;  // of the message that came; with another length or kind it was not stored
  int64_t sent_kind = -1;
};

// A message is a block of the sender's arena, so the sender never waits. Blocks to one peer form a chain,
// which the peer reads in order. Messages that nobody asked for yet are copied aside, up to a limit per
// sender; beyond the limit they stay where they are. So a peer can fill its own memory, but not another's.
// Messages with one tag are received in the order in which they were sent, by the receipts in the order in
// which those were asked for. Any thread may call.
class Mailbox {
 public:
  Mailbox(std::shared_ptr<Arena> arena, Waiting& waiting);
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Throws ArenaFull; PeerLost when the peer is known to be gone.
  void send(int64_t peer, const Label& label, std::span<const std::byte> message);

  // Throws PeerLost once the group is over for this rank.
  std::shared_ptr<Receipt> ask(const Receipt& wanted);

  // Whether the message has come, or the receipt was given up.
  bool is_done(const std::shared_ptr<Receipt>& receipt);

  // Throws PeerLost if the message cannot come any more. A message that does not come in time ends the group,
  // because it may come later and would be taken for another. Returns false if the receipt was given up.
  bool wait(const std::shared_ptr<Receipt>& receipt, std::chrono::milliseconds time);

  // The same, but a receipt whose message does not come in time is given up, and the group goes on.
  bool wait_or_give_up(const std::shared_ptr<Receipt>& receipt, std::chrono::milliseconds time);

  // From now on nothing is written to the receipt's memory. Its message, if it comes, is dropped.
  void give_up(const std::shared_ptr<Receipt>& receipt);

  // Returns the blocks that may still be read: the caller frees them when all peers have left.
  std::vector<std::byte*> take_blocks();

 private:
  struct Kept {
    int64_t sender = 0;
    Message message = {};
    bool is_held = false;              // in the sender's memory
    std::vector<std::byte> copy = {};  // else here
  };

  struct Look {
    bool is_done = false;
    bool has_more = false;  // more has come than was taken
  };

  Look look(const std::shared_ptr<Receipt>& receipt);
  bool is_done_within(const std::shared_ptr<Receipt>& receipt, std::chrono::milliseconds time);
  void send_to_self(const Label& label, std::span<const std::byte> message);
  void free_read(int64_t peer);
  bool take_what_came();
  bool take_what_came(int64_t sender);
  void deliver(int64_t sender, const Message& message);
  void keep(int64_t sender, const Message& message);
  void forget(std::list<Kept>::iterator kept);
  bool is_wanted(const std::shared_ptr<Receipt>& receipt);
  static bool fits(const Receipt& receipt, int64_t sender, const Label& label);
  static void fulfil(Receipt& receipt, int64_t sender, const Message& message);

  std::shared_ptr<Arena> arena_;
  Waiting& waiting_;
  std::mutex mutex_;
  std::vector<std::deque<MessageHead*>> sent_;    // by peer: the blocks from `freed_` on
  std::vector<uint64_t> freed_;                   // by peer: blocks freed
  std::vector<Chain> chains_;                     // by peer: its messages
  std::vector<int64_t> kept_bytes_;               // by peer: of the copies in kept_
  std::list<std::shared_ptr<Receipt>> receipts_;  // not done yet, some given up
  std::list<Kept> kept_;                          // messages that nobody asked for yet
};

}  // namespace shardway::shm
