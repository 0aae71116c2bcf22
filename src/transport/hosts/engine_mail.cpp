#include "transport/hosts/engine_mail.h"

#include <c10/util/Exception.h>

#include <utility>

#include "engine/courier.h"

namespace shardway {
namespace {

// Runs `body`; a peer that was lost becomes torch's error.
template <class Body>
auto in_torch_words(int64_t rank, Body&& body) {
  try {
    return body();
  } catch (const shm::PeerLost& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", rank, ")");
  } catch (const shm::WrongProcess& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", rank, ")");
  }
}

class ErrandLetter : public Letter {
 public:
  ErrandLetter(std::shared_ptr<Courier> courier, Courier::Errand errand)
      : courier_(std::move(courier)), errand_(std::move(errand)) {}

  void wait() override {
    in_torch_words(courier_->rank(), [&] { errand_.wait(); });
  }

 private:
  std::shared_ptr<Courier> courier_;
  Courier::Errand errand_;
};

class CourierMail : public Mail {
 public:
  CourierMail(std::shared_ptr<Courier> courier, const CallOfCourier& call)
      : courier_(std::move(courier)), call_(call) {}

  int64_t rank() const override { return courier_->rank(); }
  int64_t size() const override { return courier_->size(); }

  std::unique_ptr<Letter> send(const at::Tensor& bytes, int64_t to) override {
    const auto* data = static_cast<const std::byte*>(bytes.const_data_ptr());
    return posted([&] { return courier_->send(call_, {data, bytes.nbytes()}, to, keeper_of(bytes)); });
  }

  std::unique_ptr<Letter> receive(const at::Tensor& bytes, int64_t from) override {
    return received(bytes, from, Room::is_exact);
  }

  bool takes_shorter() const override { return true; }

  std::unique_ptr<Letter> receive_up_to(const at::Tensor& bytes, int64_t from) override {
    return received(bytes, from, Room::may_be_larger);
  }

 private:
  static MessageEngine::Keeper keeper_of(const at::Tensor& bytes) {
    return std::make_shared<const at::Tensor>(bytes);
  }

  std::unique_ptr<Letter> received(const at::Tensor& bytes, int64_t from, Room room) {
    auto* data = static_cast<std::byte*>(bytes.mutable_data_ptr());
    return posted([&] {
      return courier_->receive(call_, {data, bytes.nbytes()}, from, room, keeper_of(bytes));
    });
  }

  template <class Post>
  std::unique_ptr<Letter> posted(Post&& post) {
    return std::make_unique<ErrandLetter>(courier_, in_torch_words(rank(), post));
  }

  std::shared_ptr<Courier> courier_;
  CallOfCourier call_;
};

class CourierOffice : public MailOffice {
 public:
  explicit CourierOffice(std::shared_ptr<Courier> courier) : courier_(std::move(courier)) {}

  int64_t rank() const override { return courier_->rank(); }
  int64_t size() const override { return courier_->size(); }

  // Receivers of the engine see how long a message was, so tags need not tell it.
  Opened open(const Subject& subject, Lengths /*lengths*/) override {
    const CallOfCourier call = in_torch_words(rank(), [&] { return courier_->open(subject.mark); });
    return {.mail = std::make_shared<CourierMail>(courier_, call), .number = call.number};
  }

  std::string give_up(int64_t rank, const std::string& why) override {
    return c10::str(courier_->give_up(rank, why).what(), " (rank ", courier_->rank(), ")");
  }

  std::function<void()> idle_work() override {
    return [courier = courier_] { courier->keep_moving(); };
  }

 private:
  std::shared_ptr<Courier> courier_;
};

}  // namespace

std::shared_ptr<MailOffice> make_mail_office(std::shared_ptr<MessageEngine> engine,
                                             std::chrono::milliseconds timeout) {
  return std::make_shared<CourierOffice>(std::make_shared<Courier>(std::move(engine), timeout));
}

}  // namespace shardway
