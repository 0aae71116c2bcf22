#include "shm/calls/message.h"

#include <algorithm>
#include <string>

#include "shm/calls/header.h"

namespace shardway::shm {
namespace {

constexpr int64_t kHeadBytes = sizeof(MessageHead);

bool holds(std::span<const std::byte> memory, int64_t offset, int64_t bytes) {
  const auto size = static_cast<int64_t>(memory.size());
  return offset >= 0 && bytes >= 0 && bytes <= size && offset <= size - bytes;
}

const MessageHead& head_at(std::span<const std::byte> memory, int64_t offset) {
  return *reinterpret_cast<const MessageHead*>(memory.data() + offset);
}

}  // namespace

std::optional<Message> Chain::next(std::span<const std::byte> memory, int64_t first, uint64_t sent) {
  if (sent <= read_) return std::nullopt;
  // Acquire: pairs with the release in Mailbox::send; the message was written before.
  const int64_t offset = read_ == 0 ? first : head_at(memory, last_).next.load(std::memory_order_acquire);
  const auto refuse = [offset](const char* why) {
    throw BadHeader("a message at " + std::to_string(offset) + " " + why);
  };
  if (offset <= 0 || offset % int64_t{alignof(MessageHead)} != 0 || !holds(memory, offset, kHeadBytes))
    refuse("is none");
  if (offset == last_ || held_offsets_.contains(offset)) refuse("follows itself");
  const MessageHead& head = head_at(memory, offset);
  const Label label = copied(head.label);
  const int64_t bytes = copied(head.bytes);
  if (!holds(memory, offset + kHeadBytes, bytes)) refuse("is longer than its sender's memory");
  last_ = offset;
  return Message{
      .number = read_++,
      .label = label,
      .bytes = memory.subspan(static_cast<size_t>(offset + kHeadBytes), static_cast<size_t>(bytes))};
}

void Chain::hold() {
  held_.push_back({.number = read_ - 1, .offset = last_, .is_held = true});
  held_offsets_.insert(last_);
}

void Chain::let_go(uint64_t number) {
  const auto held = std::lower_bound(held_.begin(), held_.end(), number,
                                     [](const Held& one, uint64_t wanted) { return one.number < wanted; });
  held->is_held = false;
  while (!held_.empty() && !held_.front().is_held) {
    held_offsets_.erase(held_.front().offset);
    held_.pop_front();
  }
}

}  // namespace shardway::shm
