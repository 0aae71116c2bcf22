// Ranks as threads of one process: messages are copies in a mailbox per pair.
#include "transport/c10d/threads.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "shardway/group.h"
#include "transport/c10d/mail_transfer.h"
#include "transport/common/call_queue.h"

namespace shardway {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

// The mailboxes of all pairs of ranks. A receiver takes its number when it asks, so that messages meet their
// receivers in order even if an earlier message is waited for later, or never.
class PostOffice {
 public:
  explicit PostOffice(int64_t ranks) : ranks_(ranks), boxes_(static_cast<size_t>(ranks * ranks)) {}

  int64_t ranks() const { return ranks_; }

  void put(int64_t from, int64_t to, at::Tensor bytes) {
    {
      const std::lock_guard lock(mutex_);
      Mailbox& box = mailbox(from, to);
      box.letters.emplace(box.sent++, std::move(bytes));
    }
    arrived_.notify_all();
  }

  int64_t next_number(int64_t from, int64_t to) {
    const std::lock_guard lock(mutex_);
    return mailbox(from, to).asked++;
  }

  at::Tensor take(int64_t from, int64_t to, int64_t number) {
    std::unique_lock lock(mutex_);
    auto& letters = mailbox(from, to).letters;
    arrived_.wait_for(lock, kPatience, [&] { return closed_ || letters.contains(number); });
    const auto letter = letters.find(number);
    TORCH_CHECK_WITH(DistBackendError, letter != letters.end(), "rank ", from,
                     closed_ ? " ended" : " sent nothing for 60 s", " (rank ", to, ")");
    at::Tensor bytes = std::move(letter->second);
    letters.erase(letter);
    return bytes;
  }

  // Called if a rank fails: everyone who waits for a message stops waiting.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
  }

 private:
  struct Mailbox {
    int64_t sent = 0;
    int64_t asked = 0;
    std::map<int64_t, at::Tensor> letters;
  };

  Mailbox& mailbox(int64_t from, int64_t to) { return boxes_[static_cast<size_t>(from * ranks_ + to)]; }

  int64_t ranks_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Mailbox> boxes_;
  bool closed_ = false;
};

class Sent : public Letter {
 public:
  void wait() override {}
};

class Awaited : public Letter {
 public:
  Awaited(std::shared_ptr<PostOffice> office, int64_t from, int64_t to, at::Tensor bytes, bool may_be_shorter)
      : office_(std::move(office)),
        from_(from),
        to_(to),
        number_(office_->next_number(from, to)),
        bytes_(std::move(bytes)),
        may_be_shorter_(may_be_shorter) {}

  void wait() override {
    const at::Tensor arrived = office_->take(from_, to_, number_);
    const int64_t bytes = arrived.numel();
    const bool fits = bytes == bytes_.numel() || (may_be_shorter_ && bytes < bytes_.numel());
    TORCH_CHECK_WITH(DistBackendError, fits, "rank ", from_, " sent ", bytes, " bytes where ", bytes_.numel(),
                     " were expected (rank ", to_, ")");
    bytes_.narrow(0, 0, bytes).copy_(arrived);
  }

 private:
  std::shared_ptr<PostOffice> office_;
  int64_t from_;
  int64_t to_;
  int64_t number_;
  at::Tensor bytes_;
  bool may_be_shorter_;
};

class ThreadMail : public Mail {
 public:
  ThreadMail(std::shared_ptr<PostOffice> office, int64_t rank) : office_(std::move(office)), rank_(rank) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return office_->ranks(); }

  std::unique_ptr<Letter> send(const at::Tensor& bytes, int64_t to) override {
    office_->put(rank_, to, bytes.clone());
    return std::make_unique<Sent>();
  }

  std::unique_ptr<Letter> receive(const at::Tensor& bytes, int64_t from) override {
    return std::make_unique<Awaited>(office_, from, rank_, bytes, /*may_be_shorter=*/false);
  }

  bool takes_shorter() const override { return true; }

  std::unique_ptr<Letter> receive_up_to(const at::Tensor& bytes, int64_t from) override {
    return std::make_unique<Awaited>(office_, from, rank_, bytes, /*may_be_shorter=*/true);
  }

 private:
  std::shared_ptr<PostOffice> office_;
  int64_t rank_;
};

class ThreadMailOffice : public MailOffice {
 public:
  ThreadMailOffice(const std::shared_ptr<PostOffice>& office, int64_t rank)
      : mail_(std::make_shared<ThreadMail>(office, rank)) {}

  int64_t rank() const override { return mail_->rank(); }
  int64_t size() const override { return mail_->size(); }
  Opened open(const Subject& /*subject*/, Lengths /*lengths*/) override {
    return {.mail = mail_, .number = ++calls_};
  }
  std::string give_up(int64_t rank, const std::string& why) override {
    return c10::str("rank ", rank, " could not be reached: ", why, " (rank ", mail_->rank(), ")");
  }

 private:
  std::shared_ptr<ThreadMail> mail_;
  uint64_t calls_ = 0;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(const std::shared_ptr<PostOffice>& office, int64_t rank)
      : mail_(std::make_shared<ThreadMail>(office, rank)) {}

  int64_t rank() const override { return mail_->rank(); }
  int64_t size() const override { return mail_->size(); }
  std::optional<std::string> refuses(c10::Device) override { return std::nullopt; }

  int64_t slot_bytes() override { return slot_bytes_by_mail(mail_->takes_shorter(), mail_->size()); }
  std::unique_ptr<Posted> post(std::function<void()> call) override { return queue_.post(std::move(call)); }

  Blocks all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject&) override {
    Blocks blocks;
    queue_.in_turn([&] { blocks = all_gather_block_by_mail(*mail_, mine, row_bytes, ++calls_); });
    return blocks;
  }

  std::unique_ptr<Transfer> start(const Route& route, const at::Tensor& x, const at::Tensor& out,
                                  const KnownInputs& known, const Subject&) override {
    std::unique_ptr<Transfer> transfer;
    queue_.in_turn([&] { transfer = start_by_mail(mail_, route, x, out, known); });
    return transfer;
  }

 private:
  std::shared_ptr<ThreadMail> mail_;
  uint64_t calls_ = 0;
  CallQueue queue_;
};

}  // namespace

struct ThreadWorld::Offices {
  explicit Offices(int64_t ranks) : post(std::make_shared<PostOffice>(ranks)) {}
  std::shared_ptr<PostOffice> post;
};

ThreadWorld::ThreadWorld(int64_t ranks) : offices_(std::make_shared<Offices>(ranks)) {}

std::shared_ptr<Transport> ThreadWorld::transport(int64_t rank) const {
  return std::make_shared<ThreadTransport>(offices_->post, rank);
}

std::shared_ptr<MailOffice> ThreadWorld::mail_office(int64_t rank) const {
  return std::make_shared<ThreadMailOffice>(offices_->post, rank);
}

void ThreadWorld::close() const { offices_->post->close(); }

void run_on_threads(int64_t ranks, const std::function<void(int64_t rank)>& body,
                    const std::function<void()>& when_one_fails) {
  std::mutex mutex;
  std::exception_ptr first_failure;
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first_failure) first_failure = std::current_exception();
        when_one_fails();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first_failure) std::rethrow_exception(first_failure);
}

void run_as_threads(int64_t ranks, const std::function<void(const Group&)>& body) {
  const ThreadWorld world(ranks);
  run_on_threads(
      ranks, [&](int64_t rank) { body(Group(world.transport(rank))); }, [&] { world.close(); });
}

}  // namespace shardway
