// The calls of a group, in the order in which they are made.
#pragma once

#include <functional>
#include <memory>

#include "transport/common/transport.h"

namespace shardway {

// A call runs on its caller's thread, or, once calls have been posted, behind them on a thread of its own.
class CallQueue {
 public:
  CallQueue();
  ~CallQueue();  // posted calls go on
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Runs a call when those before it are over; throws what it throws. A caller that waits for its turn may be
  // interrupted (shm/board/interrupt.h): then `give_up` is to end the calls before it, and this one.
  void in_turn(const std::function<void()>& call, const std::function<void()>& give_up = {});

  // Whether the caller is the thread itself, in a posted call or in what that led to.
  bool is_own_thread() const;

  // Leaves a call to the thread, in torch's modes of the caller.
  std::unique_ptr<Posted> post(std::function<void()> call);

 private:
  class Thread;

  std::shared_ptr<Thread> thread_;
};

}  // namespace shardway
