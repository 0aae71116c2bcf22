// A wait for an engine that cannot be asked whether it is done.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "transport/common/call_queue.h"

namespace shardway {

// The caller's thread waits, unless somebody has asked before: then a thread of its own waits from the first
// question on, and wait() waits for that thread.
class Aside {
 public:
  // `wait` keeps alive what it needs. It may go on after this object is gone.
  explicit Aside(std::function<void()> wait) : wait_(std::move(wait)) {}

  // Throws what the wait threw.
  void wait() {
    if (posted_) return posted_->wait();
    has_ended_ = true;  // even if it throws
    wait_();
  }

  bool is_over() {
    if (has_ended_) return true;
    if (!posted_) posted_ = CallQueue().post(wait_);
    return posted_->is_over();
  }

 private:
  std::function<void()> wait_;
  std::unique_ptr<Posted> posted_;
  bool has_ended_ = false;
};

}  // namespace shardway
