#include "shm/mailbox.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "shm/copy.h"
#include "shm/header.h"

namespace shardway::shm {

Mailbox::Mailbox(std::shared_ptr<Arena> arena, Waiting& waiting)
    : arena_(std::move(arena)),
      waiting_(waiting),
      sent_(static_cast<size_t>(waiting.size())),
      freed_(static_cast<size_t>(waiting.size())),
      last_(static_cast<size_t>(waiting.size())) {}

void Mailbox::send(int64_t peer, const Label& label, std::span<const std::byte> message) {
  if (peer == waiting_.rank()) return send_to_self(label, message);
  waiting_.check_peer(peer);
  const auto bytes = static_cast<int64_t>(message.size());
  std::byte* block = arena_->allocate(int64_t{sizeof(Head)} + bytes);
  auto* head = new (block) Head{.next = 0, .label = label, .bytes = bytes};
  copy_bytes(block + sizeof(Head), message.data(), bytes);
  const std::lock_guard lock(mutex_);
  auto& chain = sent_[static_cast<size_t>(peer)];
  PairLine& pair = waiting_.own().pair(peer);
  // Release, both: the message is written before the count of messages says that it is there.
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
  deliver(waiting_.rank(), label, message);
}

// A message leads to the one after it, so the last that was read stays.
void Mailbox::free_read(int64_t peer) {
  const auto p = static_cast<size_t>(peer);
  // Acquire: pairs with the release in take_all_that_came().
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
    for (Head* head : chain) blocks.push_back(reinterpret_cast<std::byte*>(head));
    chain.clear();
  }
  return blocks;
}

std::shared_ptr<Receipt> Mailbox::ask(const Receipt& wanted) {
  waiting_.check_lost();
  auto receipt = std::make_shared<Receipt>(wanted);
  const std::lock_guard lock(mutex_);
  const auto kept = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& message) {
    return fits(*receipt, message.sender, message.label);
  });
  if (kept == kept_.end()) {
    receipts_.push_back(receipt);
  } else {
    fulfil(*receipt, kept->sender, kept->label, kept->bytes);
    kept_.erase(kept);
  }
  return receipt;
}

bool Mailbox::is_done(const std::shared_ptr<Receipt>& receipt) {
  const std::lock_guard lock(mutex_);
  // Once the group is over nothing is taken any more.
  if (!receipt->is_done && !waiting_.is_lost()) take_all_that_came();
  return receipt->is_done || receipt->is_given_up;
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
  return waiting_.within(time, waited_for, [&] { return is_done(receipt); });
}

bool Mailbox::wait(const std::shared_ptr<Receipt>& receipt, std::chrono::milliseconds time) {
  if (is_done_within(receipt, time)) return !receipt->is_given_up;
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

void Mailbox::fulfil(Receipt& receipt, int64_t sender, const Label& label, std::span<const std::byte> bytes) {
  receipt.sender = sender;
  receipt.sent_bytes = static_cast<int64_t>(bytes.size());
  receipt.sent_kind = label.kind;
  if (bytes.size() == receipt.to.size() && label.kind == receipt.label.kind && !receipt.is_given_up)
    copy_bytes(receipt.to.data(), bytes.data(), receipt.sent_bytes);
  receipt.is_done = true;
}

// Null while there is none.
const Mailbox::Head* Mailbox::next_of(int64_t sender) const {
  const PairLine& theirs = waiting_.board(sender).pair(waiting_.rank());
  const uint64_t received = waiting_.own().pair(sender).received.load(std::memory_order_relaxed);
  // Acquire: pairs with the release in send().
  if (theirs.sent.load(std::memory_order_acquire) <= received) return nullptr;
  const Head* last = last_[static_cast<size_t>(sender)];
  const int64_t offset = last == nullptr ? theirs.first_message.load(std::memory_order_acquire)
                                         : last->next.load(std::memory_order_acquire);
  const Peer& peer = waiting_.peer(sender);
  if (!peer.holds(offset, sizeof(Head)))
    throw BadHeader("rank " + std::to_string(sender) + " sends nothing that can be");
  return reinterpret_cast<const Head*>(peer.base() + offset);
}

void Mailbox::take_all_that_came() {
  for (int64_t sender = 0; sender < waiting_.size(); ++sender) {
    if (sender == waiting_.rank()) continue;
    bool has_taken = false;
    while (const Head* head = next_of(sender)) {
      take(sender, *head);
      last_[static_cast<size_t>(sender)] = head;
      // Release: pairs with the acquire in free_read(): the block was read.
      waiting_.own().pair(sender).received.fetch_add(1, std::memory_order_release);
      has_taken = true;
    }
    if (has_taken) waiting_.ring();
  }
}

void Mailbox::take(int64_t sender, const Head& head) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&head + 1);
  const Label label = head.label;
  const int64_t count = head.bytes;
  const Peer& peer = waiting_.peer(sender);
  if (!peer.holds(bytes - peer.base(), count))
    throw BadHeader("rank " + std::to_string(sender) + " sends a message outside its memory");
  deliver(sender, label, {bytes, static_cast<size_t>(count)});
}

void Mailbox::deliver(int64_t sender, const Label& label, std::span<const std::byte> message) {
  const auto receipt = std::find_if(receipts_.begin(), receipts_.end(),
                                    [&](const auto& asked) { return fits(*asked, sender, label); });
  if (receipt == receipts_.end()) {
    kept_.push_back({.sender = sender, .label = label, .bytes = {message.begin(), message.end()}});
  } else {
    fulfil(**receipt, sender, label, message);
    receipts_.erase(receipt);
  }
}

}  // namespace shardway::shm
