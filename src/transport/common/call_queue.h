// The calls of a group, in the order in which they are made.
#pragma once

#include <functional>
#include <memory>

#include "transport/common/transport.h"

namespace shardway {

// A call runs on its caller's thread or, while posted calls are pending, after them on the queue's own
// thread.
class CallQueue {
 public:
  CallQueue();
  ~CallQueue();  // posted calls go on
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Runs a call when the calls before it are over; throws what it throws. A caller that waits for its turn
  // may be interrupted (shm/board/interrupt.h). Then `give_up` is called: it should end the calls before this
  // one, and this one.
  void in_turn(const std::function<void()>& call, const std::function<void()>& give_up = {});

  // Whether the caller is the queue's own thread, in a posted call or in something that it calls.
  bool is_own_thread() const;

  // Leaves a call to the thread, which runs it in the caller's torch modes.
  std::unique_ptr<Posted> post(std::function<void()> call);

 private:
  class Thread;

  std::shared_ptr<Thread> thread_;
};

}  // namespace shardway
