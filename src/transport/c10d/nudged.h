// Waits for messages that end now and then, so that the waiting thread can look around.
#pragma once

#include <chrono>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace shardway {

// How often a wait ends.
inline constexpr std::chrono::milliseconds kBeat{50};

// A wait of gloo that reaches its timeout closes all connections of its group. One that is aborted returns
// false and can be repeated. While this object lives, a thread of the process aborts the waits for `work`
// every kBeat. The thread ends soon after the last wait.
class Nudged {
 public:
  explicit Nudged(c10d::Work& work);
  ~Nudged();
  Nudged(const Nudged&) = delete;
  Nudged& operator=(const Nudged&) = delete;

  // False if no thread could be started: waits for `work` end at their timeout only.
  bool has_thread() const { return has_thread_; }

 private:
  c10d::Work& work_;
  bool has_thread_;
};

}  // namespace shardway
