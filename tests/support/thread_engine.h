// A MessageEngine between threads of one process, for tests.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "shardway/message_engine.h"

namespace shardway::testing {

// What the engines of all ranks share: messages that were sent and not received, by sender, receiver and tag.
class ThreadPost {
 public:
  explicit ThreadPost(int64_t ranks) : ranks_(ranks) {}

  int64_t ranks() const { return ranks_; }
  int64_t sent_bytes(int64_t from, int64_t to) const {
    const std::lock_guard lock(mutex_);
    const auto found = sent_.find({from, to});
    return found == sent_.end() ? 0 : found->second;
  }

  void put(int64_t from, int64_t to, int64_t tag, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    boxes_[{from, to, tag}].emplace_back(bytes.begin(), bytes.end());
    sent_[{from, to}] += static_cast<int64_t>(bytes.size());
  }

  std::optional<std::vector<std::byte>> take(int64_t from, int64_t to, int64_t tag) {
    const std::lock_guard lock(mutex_);
    auto& box = boxes_[{from, to, tag}];
    if (box.empty()) return std::nullopt;
    auto bytes = std::move(box.front());
    box.pop_front();
    return bytes;
  }

 private:
  int64_t ranks_;
  mutable std::mutex mutex_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::deque<std::vector<std::byte>>> boxes_;
  std::map<std::pair<int64_t, int64_t>, int64_t> sent_;
};

class ThreadEngine : public MessageEngine {
 public:
  ThreadEngine(std::shared_ptr<ThreadPost> post, int64_t rank) : post_(std::move(post)), rank_(rank) {}
  ~ThreadEngine() override { let_messages_leave(); }
  ThreadEngine(const ThreadEngine&) = delete;
  ThreadEngine& operator=(const ThreadEngine&) = delete;

  bool serves_any_thread = true;
  bool is_lazy = false;  // a message leaves with the next call of the engine, as it may under MPI

  std::string name() const override { return "threads"; }
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return post_->ranks(); }
  bool serves_threads() const override { return serves_any_thread; }
  int64_t tags() const override { return 1 << 20; }

  std::vector<std::byte> exchange(std::span<const std::byte> /*mine*/) override {
    throw std::logic_error("these ranks have joined already");
  }

  std::unique_ptr<EngineMessage> send(std::span<const std::byte> bytes, int64_t to, int64_t tag,
                                      Keeper /*keeper*/) override {
    let_messages_leave();
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back({.to = to, .tag = tag, .bytes = {bytes.begin(), bytes.end()}});
    }
    if (!is_lazy) let_messages_leave();
    return std::make_unique<Sent>();
  }

  std::unique_ptr<EngineMessage> receive(std::span<std::byte> room, int64_t from, int64_t tag,
                                         Keeper /*keeper*/) override {
    let_messages_leave();
    return std::make_unique<Coming>(*this, room, from, tag);
  }

  std::optional<Letter> take(int64_t tag) override {
    let_messages_leave();
    for (int64_t from = 0; from < size(); ++from) {
      if (auto bytes = post_->take(from, rank_, tag)) return Letter{.from = from, .bytes = std::move(*bytes)};
    }
    return std::nullopt;
  }

 private:
  struct Sent : EngineMessage {
    bool is_done() override { return true; }
    int64_t bytes() const override { return 0; }
  };

  class Coming : public EngineMessage {
   public:
    Coming(ThreadEngine& engine, std::span<std::byte> room, int64_t from, int64_t tag)
        : engine_(engine), room_(room), from_(from), tag_(tag) {}

    bool is_done() override {
      engine_.let_messages_leave();
      const auto came = engine_.post_->take(from_, engine_.rank_, tag_);
      if (!came) return false;
      if (came->size() > room_.size()) throw std::runtime_error("a message was too long");
      std::memcpy(room_.data(), came->data(), came->size());
      bytes_ = static_cast<int64_t>(came->size());
      return true;
    }
    int64_t bytes() const override { return bytes_; }

   private:
    ThreadEngine& engine_;
    std::span<std::byte> room_;
    int64_t from_;
    int64_t tag_;
    int64_t bytes_ = 0;
  };

  struct Message {
    int64_t to = 0;
    int64_t tag = 0;
    std::vector<std::byte> bytes = {};
  };

  void let_messages_leave() {
    const std::lock_guard lock(mutex_);
    for (const Message& message : waiting_) post_->put(rank_, message.to, message.tag, message.bytes);
    waiting_.clear();
  }

  std::shared_ptr<ThreadPost> post_;
  int64_t rank_;
  std::mutex mutex_;
  std::vector<Message> waiting_;  // of a lazy engine
};

}  // namespace shardway::testing
