#include "transport/c10d/mail_transfer.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "shm/memory/fork_mutex.h"
#include "terms/block.h"
#include "transport/c10d/aside.h"
#include "transport/common/arrivals.h"
#include "transport/common/boxes.h"
#include "transport/common/home_process.h"
#include "transport/memory/tensors.h"

namespace shardway {
namespace {

// At most this many messages are under way at once, because engines keep a buffer or a socket entry for each.
constexpr size_t kMaxInFlight = 64;

// If a block is sent at its exact length, a larger payload costs two copies and saves a round; up to about
// this size that pays. If all blocks are padded to one length, the slots of all ranks together stay small
// (docs/decisions/0003).
constexpr int64_t kExactSlotBytes = 128 << 10;
constexpr int64_t kAllPaddedSlotsBytes = 64 << 10;
constexpr int64_t kLeastSlotBytes = 1 << 10;

struct Posting {
  int64_t distance = 0;  // how far the peer is ahead (send) or behind (receive), around the ring
  int64_t number = 0;    // among the messages between the two ranks
  bool is_send = false;
  size_t move = 0;  // index into the route's pushes or pulls
};

// Orders the messages by distance, then by number, with a send beside each receive, in the same way on every
// rank. So for any bound on messages under way (at least two), both sides have posted the first unfinished
// message in this order, and no rank waits for one that its peer cannot post.
std::vector<Posting> in_ring_order(const Arrivals& arrivals, bool sends_nothing) {
  const Route& route = arrivals.route();
  std::vector<Posting> order;
  std::vector<int64_t> numbers(static_cast<size_t>(route.size), 0);
  for (size_t i = 0; i < route.pulls.size(); ++i) {
    if (!arrivals.buffer(i).defined()) continue;
    const int64_t peer = route.pulls[i].peer;
    const int64_t behind = (route.rank - peer + route.size) % route.size;
    order.push_back(
        {.distance = behind, .number = numbers[static_cast<size_t>(peer)]++, .is_send = false, .move = i});
  }
  numbers.assign(numbers.size(), 0);
  for (size_t i = 0; i < route.pushes.size() && !sends_nothing; ++i) {
    const Move& push = route.pushes[i];
    if (push.peer == route.rank || push.mine.volume() == 0) continue;
    const int64_t ahead = (push.peer - route.rank + route.size) % route.size;
    order.push_back(
        {.distance = ahead, .number = numbers[static_cast<size_t>(push.peer)]++, .is_send = true, .move = i});
  }
  std::stable_sort(order.begin(), order.end(), [](const Posting& a, const Posting& b) {
    return std::pair(a.distance, a.number) < std::pair(b.distance, b.number);
  });
  return order;
}

// Waits for the messages of transfers that were dropped: peers still need them, and engines cannot be asked
// whether a message is done. The first drop starts its one thread, which ends with the process.
class Janitor {
 public:
  static Janitor& instance() {
    static auto* janitor = new Janitor;  // never destroyed: its thread outlives the end of main
    return *janitor;
  }

  void adopt(std::deque<std::unique_ptr<Letter>> messages) {
    const std::lock_guard lock(mutex_);
    if (!home_.is_this()) begin_anew();
    for (auto& message : messages) left_.push_back(std::move(message));
    came_->notify_one();
    if (is_at_work_) return;
    try {
      std::thread([this] { work(); }).detach();
      is_at_work_ = true;
    } catch (const std::system_error&) {  // the messages stay until a thread can be started
    }
  }

 private:
  Janitor() = default;

  // In a child of fork the thread does not exist, and the messages that it waited for belong to the parent.
  void begin_anew() {
    for (auto& message : left_) (void)message.release();
    left_.clear();
    (void)came_.release();
    came_ = std::make_unique<std::condition_variable_any>();
    is_at_work_ = false;
    home_ = {};
  }

  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      came_->wait(lock, [this] { return !left_.empty(); });
      const std::unique_ptr<Letter> message = std::move(left_.front());
      left_.pop_front();
      lock.unlock();
      try {
        message->wait();
      } catch (const std::exception&) {  // nobody is left to tell
      }
    }
  }

  HomeProcess home_;
  shm::ForkMutex mutex_;
  std::unique_ptr<std::condition_variable_any> came_ = std::make_unique<std::condition_variable_any>();
  std::deque<std::unique_ptr<Letter>> left_;
  bool is_at_work_ = false;
};

[[maybe_unused]] const Janitor& janitor_at_load = Janitor::instance();

// Leaks the messages: in a child of fork they belong to the parent.
void abandon(std::deque<std::unique_ptr<Letter>>& messages) {
  for (auto& message : messages) (void)message.release();
  messages.clear();
}

// The messages of a transfer, on the way and still to be posted.
class Messages {
 public:
  Messages(std::shared_ptr<Mail> mail, const Route& route, const at::Tensor& x, const at::Tensor& out,
           const KnownInputs& known)
      : mail_(std::move(mail)), x_(x), arrivals_(route, x, out, known) {
    order_ = in_ring_order(arrivals_, is_known(known, route.rank));
  }

  // Before start(), or not at all. If not all messages can be under way at once, it does nothing: a rank
  // whose receives take all the room would not send what others wait for.
  void post_receives() {
    if (order_.size() > kMaxInFlight) return;
    const auto first_send =
        std::stable_partition(order_.begin(), order_.end(), [](const Posting& one) { return !one.is_send; });
    const auto receives = static_cast<size_t>(first_send - order_.begin());
    while (posted_ < receives) post_next();
  }

  // The input is there.
  void start() {
    has_started_ = true;
    while (posted_ < order_.size() && in_flight_.size() < kMaxInFlight) post_next();
    arrivals_.land_known();
  }

  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() {
    if (!home_.is_this()) abandon(in_flight_);
    if (!home_.is_this() || (in_flight_.empty() && posted_ == order_.size())) return;
    try {
      if (has_started_) post_all();
    } catch (const std::exception&) {  // the group is broken, and the caller has dropped the call
    }
    Janitor::instance().adopt(std::move(in_flight_));
  }

  bool are_none() const { return order_.empty(); }

  void wait() {
    home_.check();
    post_all();
    while (!in_flight_.empty()) wait_for_oldest();
  }

  // Once wait() has returned: puts what was received into its place.
  void land() { arrivals_.land_received(); }

 private:
  void post_next() {
    const Posting& posting = order_[posted_++];
    if (posting.is_send) {
      const Move& push = arrivals_.route().pushes[posting.move];
      in_flight_.push_back(mail_->send(bytes_of(packed(push.mine)), push.peer));
    } else {
      in_flight_.push_back(mail_->receive(bytes_of(arrivals_.buffer(posting.move)),
                                          arrivals_.route().pulls[posting.move].peer));
    }
  }

  void post_all() {
    for (; posted_ < order_.size(); post_next()) {
      if (in_flight_.size() >= kMaxInFlight) wait_for_oldest();
    }
  }

  void wait_for_oldest() {
    in_flight_.front()->wait();
    in_flight_.pop_front();
  }

  // A gather sends one box to every peer; it is packed only once.
  const at::Tensor& packed(const Box& box) {
    if (!packed_.defined() || !(packed_box_ == box)) {
      packed_ = view_of(x_, box).contiguous();
      packed_box_ = box;
    }
    return packed_;
  }

  HomeProcess home_;
  std::shared_ptr<Mail> mail_;
  at::Tensor x_;
  Arrivals arrivals_;
  std::vector<Posting> order_;
  size_t posted_ = 0;
  bool has_started_ = false;
  std::deque<std::unique_ptr<Letter>> in_flight_;
  at::Tensor packed_;
  Box packed_box_;
};

class MailTransfer : public ExpectingTransfer {
 public:
  explicit MailTransfer(std::shared_ptr<Messages> messages)
      : messages_(std::move(messages)), waiting_([all = messages_] { all->wait(); }) {}

  void send() override { messages_->start(); }
  void finish() override {
    waiting_.wait();
    messages_->land();
  }
  bool is_over() override { return messages_->are_none() || waiting_.is_over(); }

 private:
  std::shared_ptr<Messages> messages_;
  Aside waiting_;
};

}  // namespace

std::unique_ptr<Transfer> start_by_mail(std::shared_ptr<Mail> mail, const Route& route, const at::Tensor& x,
                                        const at::Tensor& out, const KnownInputs& known) {
  auto messages = std::make_shared<Messages>(std::move(mail), route, x, out, known);
  messages->start();
  return std::make_unique<MailTransfer>(std::move(messages));
}

std::unique_ptr<ExpectingTransfer> expect_by_mail(std::shared_ptr<Mail> mail, const Route& route,
                                                  const at::Tensor& x, const at::Tensor& out) {
  auto messages = std::make_shared<Messages>(std::move(mail), route, x, out, KnownInputs{});
  messages->post_receives();
  return std::make_unique<MailTransfer>(std::move(messages));
}

int64_t slot_bytes_by_mail(bool takes_shorter, int64_t ranks) {
  return takes_shorter ? kExactSlotBytes : std::max(kAllPaddedSlotsBytes / ranks, kLeastSlotBytes);
}

Blocks all_gather_block_by_mail(Mail& mail, const at::Tensor& mine, int64_t row_bytes, uint64_t number) {
  const int64_t ranks = mail.size();
  at::Tensor rows = empty_tensor({ranks, row_bytes}, mine.options());
  // A block that is shorter than it claims must not show bytes of an earlier call.
  rows.narrow(1, 0, std::min(row_bytes, wire::longest_line(ranks))).zero_();
  const at::Tensor own_row = rows.select(0, mail.rank());
  own_row.narrow(0, 0, mine.numel()).copy_(mine);
  const at::Tensor& sent = mail.takes_shorter() ? mine : own_row;
  std::deque<std::unique_ptr<Letter>> in_flight;
  for (int64_t distance = 1; distance < ranks; ++distance) {
    const int64_t behind = (mail.rank() - distance + ranks) % ranks;
    const int64_t ahead = (mail.rank() + distance) % ranks;
    in_flight.push_back(mail.receive_up_to(rows.select(0, behind), behind));
    in_flight.push_back(mail.send(sent, ahead));
    for (; in_flight.size() > kMaxInFlight; in_flight.pop_front()) in_flight.front()->wait();
  }
  for (; !in_flight.empty(); in_flight.pop_front()) in_flight.front()->wait();
  return {.rows = std::move(rows),
          .bytes = c10::SmallVector<int64_t, 8>(static_cast<size_t>(ranks), row_bytes),
          .number = number};
}

}  // namespace shardway
