#include "transport/c10d/backend_mail.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "shm/board/interrupt.h"
#include "shm/board/subject.h"

namespace shardway {
namespace {

// Distinguishes the messages of one call from those of another: the call's number and its mark.
struct CallKey {
  uint64_t number = 0;
  uint64_t mark = 0;
};

constexpr int64_t kAnyLength = -1;

// Tags lie in a range that other users of the group are unlikely to use. A message reaches a receiver only if
// both are in the same call and expect the same number of bytes: engines report no lengths, and gloo accepts
// a shorter message in place of a longer one. Between two ranks messages of one tag arrive in order.
int tag_of(const CallKey& key, int64_t bytes) {
  constexpr uint64_t kRange = 0x50000000;
  constexpr uint64_t kFree = 0x0fffffff;
  const uint64_t mark = shm::mark_of(shm::mark_of(key.mark, key.number), static_cast<uint64_t>(bytes));
  return static_cast<int>(kRange | ((mark ^ mark >> 28) & kFree));
}

std::string in_words(const Loss& loss, int64_t rank, const MailRoom& room) {
  const std::string host =
      room.hosts ? c10::str("; it is on ", (*room.hosts)[static_cast<size_t>(loss.rank)]) : "";
  return c10::str("rank ", loss.rank, " could not be reached: ", loss.why, host, " (rank ", rank, ")");
}

class BackendMail : public Mail, public std::enable_shared_from_this<BackendMail> {
 public:
  BackendMail(c10::intrusive_ptr<c10d::Backend> backend, MailRoom room, const CallKey& key, Lengths lengths)
      : backend_(std::move(backend)), room_(std::move(room)), key_(key), lengths_(lengths) {
    room_.lifelines->lay(backend_);
  }

  int64_t rank() const override { return backend_->getRank(); }
  int64_t size() const override { return backend_->getSize(); }

  std::unique_ptr<Letter> send(const at::Tensor& bytes, int64_t to) override {
    std::vector<at::Tensor> tensors{bytes};
    return message(to, [&] { return backend_->send(tensors, static_cast<int>(to), tag(bytes)); });
  }

  std::unique_ptr<Letter> receive(const at::Tensor& bytes, int64_t from) override {
    std::vector<at::Tensor> tensors{bytes};
    return message(from, [&] { return backend_->recv(tensors, static_cast<int>(from), tag(bytes)); });
  }

  bool takes_shorter() const override { return shardway::takes_shorter(*backend_); }

  std::unique_ptr<Letter> receive_up_to(const at::Tensor& bytes, int64_t from) override {
    return receive(bytes, from);
  }

  void wait(c10d::Work& work, int64_t peer) {
    PatientWait wait(*room_.lifelines, work, peer);
    while (!reaching(peer, [&] { return wait.is_done_after_a_beat(); })) check_interrupt();
  }

 private:
  class WorkMessage : public Letter {
   public:
    WorkMessage(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<BackendMail> mail, int64_t peer)
        : work_(std::move(work)), mail_(std::move(mail)), peer_(peer) {}

    void wait() override { mail_->wait(*work_, peer_); }

   private:
    c10::intrusive_ptr<c10d::Work> work_;
    std::shared_ptr<BackendMail> mail_;
    int64_t peer_;
  };

  template <class Post>
  std::unique_ptr<Letter> message(int64_t peer, Post&& post) {
    room_.ledger->check();
    return std::make_unique<WorkMessage>(reaching(peer, post), shared_from_this(), peer);
  }

  // Runs `body`; the engine's error becomes one that names the rank that was lost.
  template <class Body>
  std::invoke_result_t<Body> reaching(int64_t peer, Body&& body) {
    try {
      return body();
    } catch (const LostPeer& lost) {
      fail(lost.may_come_later ? Loss{lost.loss.rank, lost.loss.why + hint()} : lost.loss);
    } catch (const std::exception& error) {
      const std::string words = error.what();
      fail(room_.lifelines->loss_by(peer, room_.lifelines->are_laid() ? words : words + hint()));
    }
  }

  [[noreturn]] void fail(const Loss& loss) {
    const Loss first = room_.lifelines->give_up(loss, in_words(loss, rank(), room_));
    if (first.rank == rank()) room_.ledger->check();
    C10_THROW_ERROR(DistBackendError, in_words(first, rank(), room_));
  }

  void check_interrupt() {
    try {
      shm::check_interrupt();
    } catch (...) {
      room_.lifelines->tell_interrupt();
      throw;
    }
  }

  int tag(const at::Tensor& bytes) const {
    return tag_of(key_, lengths_ == Lengths::vary ? kAnyLength : bytes.numel());
  }

  // Blocks have lengths that vary. Between hosts one rank sends those of its host, once all have come.
  const char* hint() const {
    if (lengths_ == Lengths::vary)
      return room_.hosts ? "; it speaks for its host, and may be waiting for another rank there" : "";
    return "; if it is alive, it is in another call or means other sizes, which "
           "SHARDWAY_CHECK=1 tells";
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  MailRoom room_;
  CallKey key_;
  Lengths lengths_;
};

class BackendMailOffice : public MailOffice {
 public:
  BackendMailOffice(c10::intrusive_ptr<c10d::Backend> backend, MailRoom room)
      : backend_(std::move(backend)), room_(std::move(room)) {}

  int64_t rank() const override { return backend_->getRank(); }
  int64_t size() const override { return backend_->getSize(); }

  Opened open(const Subject& subject, Lengths lengths) override {
    return open_mail(backend_, room_, subject, lengths);
  }

  std::string give_up(int64_t rank, const std::string& why) override {
    const Loss found = room_.lifelines->loss(rank).value_or(Loss{rank, why});
    const Loss first = room_.lifelines->give_up(found, in_words(found, this->rank(), room_));
    return in_words(first, this->rank(), room_);
  }

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
  MailRoom room_;
};

}  // namespace

MailRoom make_mail_room() {
  auto ledger = std::make_shared<Ledger>();
  return {.ledger = ledger, .lifelines = std::make_shared<Lifelines>(ledger)};
}

bool takes_shorter(const c10d::Backend& backend) {
  const std::string name = backend.getBackendName();
  return name == "gloo" || name == "mpi";
}

MailOffice::Opened open_mail(c10::intrusive_ptr<c10d::Backend> backend, const MailRoom& room,
                             const Subject& subject, Lengths lengths) {
  const CallKey key{.number = room.ledger->next(), .mark = subject.mark};
  return {.mail = std::make_shared<BackendMail>(std::move(backend), room, key, lengths),
          .number = key.number};
}

std::shared_ptr<MailOffice> make_mail_office(c10::intrusive_ptr<c10d::Backend> backend, MailRoom room,
                                             std::vector<std::string> hosts) {
  if (!hosts.empty()) room.hosts = std::make_shared<const std::vector<std::string>>(std::move(hosts));
  return std::make_shared<BackendMailOffice>(std::move(backend), std::move(room));
}

}  // namespace shardway
