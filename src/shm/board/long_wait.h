// What a call of this thread has waited for its peers, and a word to the user when it waits for long. The
// wait loop notices it by itself: no thread watches.
#pragma once

#include <chrono>
#include <cstdint>

namespace shardway::shm {

class WatchedCall;

// The waits of one thread.
struct ThreadWaits {
  WatchedCall* call = nullptr;  // that it is in
  int64_t waited_ns = 0;        // in all of its calls, beyond the first looks
};
ThreadWaits& waits_of_thread();

// A call, on the stack of its thread. `tell` is called at most once, with how long the call has waited.
class WatchedCall {
 public:
  template <class Tell>
  explicit WatchedCall(const Tell& tell)
      : waits_(waits_of_thread()), outer_(waits_.call), waited_before_ns_(waits_.waited_ns), tell_(&tell) {
    run_ = [](const void* it, std::chrono::nanoseconds waited) { (*static_cast<const Tell*>(it))(waited); };
    waits_.call = this;
  }
  ~WatchedCall() { waits_.call = outer_; }
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

  // So far.
  int64_t waited_ns() const { return waits_.waited_ns - waited_before_ns_; }

  void tell_once(std::chrono::nanoseconds waited) {
    if (has_told_) return;
    has_told_ = true;
    run_(tell_, waited);
  }

 private:
  ThreadWaits& waits_;
  WatchedCall* outer_;
  int64_t waited_before_ns_;
  const void* tell_;
  void (*run_)(const void*, std::chrono::nanoseconds) = nullptr;
  bool has_told_ = false;
};

// Called by a wait loop now and then: the thread has waited for so long by now.
void notice_wait(std::chrono::nanoseconds waited);

// When a wait is long; 10 s, unless a test sets another.
void set_long_wait(std::chrono::milliseconds wait);

}  // namespace shardway::shm
