#include "shm/calls/mailbox.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "shm/calls/header.h"
#include "shm/kernels/copy.h"

namespace shardway::shm {
namespace {

// Messages that nobody asked for are copied aside, up to this many bytes per sender.
constexpr int64_t kMostKeptBytes = int64_t{64} << 20;

// The most that one look takes from a sender before the clock is checked.
constexpr int64_t kMostAtOnce = 256;
constexpr int64_t kMostBytesAtOnce = int64_t{16} << 20;

int64_t kept_size(const Message& message) {
  return int64_t{sizeof(MessageHead)} + static_cast<int64_t>(message.bytes.size());
}

}  // namespace

Mailbox::Mailbox(std::shared_ptr<Arena> arena, Waiting& waiting)
    : arena_(std::move(arena)),
      waiting_(waiting),
      sent_(static_cast<size_t>(waiting.size())),
      freed_(static_cast<size_t>(waiting.size())),
      chains_(static_cast<size_t>(waiting.size())),
      kept_bytes_(static_cast<size_t>(waiting.size())) {}

void Mailbox::send(int64_t peer, const Label& label, std::span<const std::byte> message) {
  if (peer == waiting_.rank()) return send_to_self(label, message);
  waiting_.check_peer(peer);
  const auto bytes = static_cast<int64_t>(message.size());
  std::byte* block = arena_->allocate(int64_t{sizeof(MessageHead)} + bytes);
  auto* head = new (block) MessageHead{.next = 0, .label = label, .bytes = bytes};
  copy_bytes(block + sizeof(MessageHead), message.data(), bytes);
  const std::lock_guard lock(mutex_);
  auto& chain = sent_[static_cast<size_t>(peer)];
  PairLine& pair = waiting_.own().pair(peer);
  // Release, all three: pair with the acquires in take_what_came() and Chain::next; the message is written
  // before the count of messages says that it is there.
  if (chain.empty()) {
    pair.first_message.store(arena_->offset_of(block), std::memory_order_release);
  } else {
    chain.back()->next.store(arena_->offset_of(block), std::memory_order_release);
  }
  chain.push_back(head);
  pair.sent.fetch_add(1, std::memory_order_release);
  waiting_.ring();
  free_read(peer);
}

void Mailbox::send_to_self(const Label& label, std::span<const std::byte> message) {
  const std::lock_guard lock(mutex_);
  deliver(waiting_.rank(), {.label = label, .bytes = message});
}

// A message leads to the one after it, so the last one that was read is not freed.
void Mailbox::free_read(int64_t peer) {
  const auto p = static_cast<size_t>(peer);
  // Acquire: pairs with the release in take_what_came().
  const uint64_t received =
      waiting_.board(peer).pair(waiting_.rank()).received.load(std::memory_order_acquire);
  for (; freed_[p] + 1 < received && sent_[p].size() > 1; ++freed_[p]) {
    arena_->free(reinterpret_cast<std::byte*>(sent_[p].front()));
    sent_[p].pop_front();
  }
}

std::vector<std::byte*> Mailbox::take_blocks() {
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*> blocks;
  for (auto& chain : sent_) {
    for (MessageHead* head : chain) blocks.push_back(reinterpret_cast<std::byte*>(head));
    chain.clear();
  }
  return blocks;
}

std::shared_ptr<Receipt> Mailbox::ask(const Receipt& wanted) {
  waiting_.check_lost();
  auto receipt = std::make_shared<Receipt>(wanted);
  const std::lock_guard lock(mutex_);
  const auto kept = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& message) {
    return fits(*receipt, message.sender, message.message.label);
  });
  if (kept == kept_.end()) {
    receipts_.push_back(receipt);
  } else {
    fulfil(*receipt, kept->sender, kept->message);
    forget(kept);
  }
  return receipt;
}

bool Mailbox::is_done(const std::shared_ptr<Receipt>& receipt) { return look(receipt).is_done; }

Mailbox::Look Mailbox::look(const std::shared_ptr<Receipt>& receipt) {
  const std::lock_guard lock(mutex_);
  // Once the group is over nothing is taken any more.
  const bool has_more = !receipt->is_done && !waiting_.is_lost() && take_what_came();
  return {.is_done = receipt->is_done || receipt->is_given_up, .has_more = has_more};
}

bool Mailbox::is_done_within(const std::shared_ptr<Receipt>& receipt, std::chrono::milliseconds time) {
  if (is_done(receipt)) return true;
  waiting_.check_lost();
  if (receipt->from == waiting_.rank()) {
    const std::lock_guard lock(mutex_);
    receipts_.remove(receipt);
    throw std::invalid_argument("a rank waits for a message of its own that it has not sent");
  }
  WaitedFor waited_for{.peers = {}, .any_will_do = !receipt->from};
  for (int64_t peer = 0; peer < waiting_.size(); ++peer) {
    if (receipt->from ? peer == *receipt->from : peer != waiting_.rank()) waited_for.peers.push_back(peer);
  }
  const auto end = std::chrono::steady_clock::now() + time;
  return waiting_.within(time, waited_for, [&] {
    for (;;) {
      const Look seen = look(receipt);
      if (seen.is_done || !seen.has_more || std::chrono::steady_clock::now() > end) return seen.is_done;
    }
  });
}

bool Mailbox::wait(const std::shared_ptr<Receipt>& receipt, std::chrono::milliseconds time) {
  if (is_done_within(receipt, time)) return is_wanted(receipt);
  give_up(receipt);
  const std::string limit = std::to_string(time.count()) + " ms";
  waiting_.end({.how = End::unanswered, .rank = waiting_.rank()},
               receipt->from ? PeerLost(*receipt->from, "it sent nothing within " + limit)
                             : PeerLost::said(waiting_.rank(), "no rank sent anything within " + limit));
  waiting_.check_lost();
  return false;
}

bool Mailbox::wait_or_give_up(const std::shared_ptr<Receipt>& receipt, std::chrono::milliseconds time) {
  if (!is_done_within(receipt, time)) give_up(receipt);
  return is_wanted(receipt);
}

bool Mailbox::is_wanted(const std::shared_ptr<Receipt>& receipt) {
  const std::lock_guard lock(mutex_);
  return !receipt->is_given_up;
}

void Mailbox::give_up(const std::shared_ptr<Receipt>& receipt) {
  const std::lock_guard lock(mutex_);
  if (receipt->is_done) return;
  receipt->is_given_up = true;
  receipt->to = {};
  receipt->owner = nullptr;
}

bool Mailbox::fits(const Receipt& receipt, int64_t sender, const Label& label) {
  return (!receipt.from || *receipt.from == sender) && receipt.label.tag == label.tag;
}

void Mailbox::fulfil(Receipt& receipt, int64_t sender, const Message& message) {
  receipt.sender = sender;
  receipt.sent_bytes = static_cast<int64_t>(message.bytes.size());
  receipt.sent_kind = message.label.kind;
  const bool is_as_asked =
      message.bytes.size() == receipt.to.size() && message.label.kind == receipt.label.kind;
  if (is_as_asked && !receipt.is_given_up)
    copy_bytes(receipt.to.data(), message.bytes.data(), receipt.sent_bytes);
  receipt.is_done = true;
}

// Returns whether there is more.
bool Mailbox::take_what_came() {
  bool has_more = false;
  for (int64_t sender = 0; sender < waiting_.size(); ++sender) {
    if (sender == waiting_.rank()) continue;
    try {
      has_more |= take_what_came(sender);
    } catch (const BadHeader& error) {
      waiting_.end({.how = End::failed, .rank = sender}, PeerLost(sender, "it sent an invalid message"));
      throw BadHeader("rank " + std::to_string(sender) + " sent an invalid message: " + error.what());
    }
  }
  return has_more;
}

bool Mailbox::take_what_came(int64_t sender) {
  const PairLine& theirs = waiting_.board(sender).pair(waiting_.rank());
  const std::span memory = waiting_.peer(sender).arena();
  Chain& chain = chains_[static_cast<size_t>(sender)];
  int64_t taken = 0;
  int64_t bytes = 0;
  while (taken < kMostAtOnce && bytes < kMostBytesAtOnce) {
    // Acquire, both: pair with the releases in send().
    const uint64_t sent = theirs.sent.load(std::memory_order_acquire);
    const auto message = chain.next(memory, theirs.first_message.load(std::memory_order_acquire), sent);
    if (!message) break;
    deliver(sender, *message);
    ++taken;
    bytes += static_cast<int64_t>(message->bytes.size());
    // Release: pairs with the acquire in free_read(): the blocks were read.
    waiting_.own().pair(sender).received.store(chain.done(), std::memory_order_release);
  }
  if (taken > 0) waiting_.ring();
  return taken == kMostAtOnce || bytes >= kMostBytesAtOnce;
}

void Mailbox::deliver(int64_t sender, const Message& message) {
  const auto receipt = std::find_if(receipts_.begin(), receipts_.end(),
                                    [&](const auto& asked) { return fits(*asked, sender, message.label); });
  if (receipt == receipts_.end()) {
    keep(sender, message);
  } else {
    fulfil(**receipt, sender, message);
    receipts_.erase(receipt);
  }
}

void Mailbox::keep(int64_t sender, const Message& message) {
  int64_t& kept_bytes = kept_bytes_[static_cast<size_t>(sender)];
  const int64_t bytes = kept_size(message);
  const bool is_held = sender != waiting_.rank() && kept_bytes > kMostKeptBytes - bytes;
  Kept& kept = kept_.emplace_back(Kept{.sender = sender, .message = message, .is_held = is_held});
  if (is_held) {
    chains_[static_cast<size_t>(sender)].hold();
  } else {
    kept.copy.assign(message.bytes.begin(), message.bytes.end());
    kept.message.bytes = kept.copy;
    kept_bytes += bytes;
  }
}

void Mailbox::forget(std::list<Kept>::iterator kept) {
  const auto sender = static_cast<size_t>(kept->sender);
  if (kept->is_held) {
    chains_[sender].let_go(kept->message.number);
    // Release: as in take_what_came().
    waiting_.own().pair(kept->sender).received.store(chains_[sender].done(), std::memory_order_release);
  } else {
    kept_bytes_[sender] -= kept_size(kept->message);
  }
  kept_.erase(kept);
}

}  // namespace shardway::shm
