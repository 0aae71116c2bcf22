// How the ranks of a gloo group learn in the middle of a call that one of them died, left or gave up.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "transport/c10d/farewell.h"
#include "transport/c10d/nudged.h"
#include "transport/common/home_process.h"
#include "transport/common/ledger.h"

namespace shardway {

// The rank that could not be reached, or whose call failed, and why.
struct Loss {
  int64_t rank = -1;
  std::string why = {};
};

struct LostPeer : std::runtime_error {
  explicit LostPeer(Loss found, bool may_come = false)
      : std::runtime_error(found.why), loss(std::move(found)), may_come_later(may_come) {}
  Loss loss;
  bool may_come_later;  // it did not come in time, and nothing else is known of it
};

// A lifeline is a receive from one peer that is always posted, on a tag of its own. It ends in two ways. The
// connection closes: gloo tells every posted receive, but not the message that is just on its way. Or the
// peer says farewell: it has left, or it gave the group up, and why.
//
// Nobody listens all the time: a thread that waits for a message looks at the lifelines every kBeat. A rank
// that left or died ends only the waits for itself, since others may have had all that they need from it. A
// rank that gave up ends every wait. Its farewell may not arrive: it follows the message that is on its way,
// and is not waited for very long. So of connections that closed without a word the first is the cause.
//
// A group of another engine has no lifelines. Thread-safe.
class Lifelines {
 public:
  explicit Lifelines(std::shared_ptr<Ledger> ledger);
  ~Lifelines();
  Lifelines(const Lifelines&) = delete;
  Lifelines& operator=(const Lifelines&) = delete;

  // To be called before every message. The first time it posts the receives, if the engine is gloo.
  void lay(const c10::intrusive_ptr<c10d::Backend>& engine);

  bool are_laid() const { return is_laid_.load(std::memory_order_acquire); }

  // Why this rank gave the group up, if it did.
  std::optional<Loss> given_up();

  // What ended the group or, if nothing has yet, this rank's connection to `peer`.
  std::optional<Loss> loss(int64_t peer);

  // The same after a message to or from `peer` failed for a reason in the engine's words.
  Loss loss_by(int64_t peer, const std::string& engines_words);

  // Ends the group: tells all others, and closes this rank's connections, so that no message stays on its
  // way. `text` is for later calls of this rank. Of several losses the first is kept, and returned.
  Loss give_up(const Loss& loss, const std::string& text);

  // The same for what happens to this rank alone. They do nothing if there are no lifelines.
  void tell_failure(const std::string& why);
  void tell_interrupt();

  // Tells the others that this rank has released the group. Messages on their way go on.
  void leave();

 private:
  friend class PatientWait;

  struct Line {
    int64_t peer = 0;
    at::Tensor bytes = {};
    c10::intrusive_ptr<c10d::Work> receive = {};  // null once the connection is closed
    std::string why_closed = {};
    int64_t closed_in_look = 0;  // if it is closed
    bool has_left = false;
  };

  void give_up_alone(const std::string& they_read, const std::string& this_rank_reads);
  std::optional<Loss> found_loss(int64_t peer);
  Loss loss_at(const Line& line, const std::string& why) const;
  Line* line_of(int64_t peer);
  void post(Line& line);
  void look_at(Line& line);
  void close(Line& line, const std::string& engines_words);
  void hear(Line& line);
  void tell(const Farewell& farewell);
  void finish_telling();
  void close_connections();

  HomeProcess home_;
  std::shared_ptr<Ledger> ledger_;
  std::mutex mutex_;
  // The stores in lay() pair with the loads there and in are_laid().
  std::atomic<bool> has_tried_ = false;
  std::atomic<bool> is_laid_ = false;
  c10::intrusive_ptr<c10d::Backend> engine_;
  c10::intrusive_ptr<c10d::Backend::Options> options_;
  std::vector<Line> lines_;
  int64_t looks_ = 0;
  std::vector<c10::intrusive_ptr<c10d::Work>> said_;  // a farewell must live until it is sent
  std::optional<Loss> heard_;                         // from a rank that gave up
  std::optional<Loss> lost_;                          // why this rank gave up
};

// A wait for one message to or from `peer`.
class PatientWait {
 public:
  PatientWait(Lifelines& lifelines, c10d::Work& work, int64_t peer);

  // Waits for about one beat; whether the message is done. Throws LostPeer if it cannot come any more or has
  // not come within the group's timeout. Without lifelines it waits as long as the engine does.
  bool is_done_after_a_beat();

 private:
  using Clock = std::chrono::steady_clock;

  std::optional<LostPeer> look();

  Lifelines& lifelines_;
  c10d::Work& work_;
  int64_t peer_;
  std::optional<Nudged> nudged_;
  std::chrono::milliseconds timeout_{0};
  Clock::time_point deadline_;
  bool is_in_doubt_ = false;  // the last look found a loss
};

}  // namespace shardway
