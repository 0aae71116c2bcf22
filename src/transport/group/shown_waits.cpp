#include "transport/group/shown_waits.h"

#include <utility>

namespace shardway {
namespace {

class ShownLetter : public Letter {
 public:
  ShownLetter(std::unique_ptr<Letter> letter, std::shared_ptr<shm::SharedGroup> host)
      : letter_(std::move(letter)), host_(std::move(host)) {}

  void wait() override {
    const auto shown = host_->wait_elsewhere();
    letter_->wait();
  }

 private:
  std::unique_ptr<Letter> letter_;
  std::shared_ptr<shm::SharedGroup> host_;
};

class ShownMail : public Mail {
 public:
  ShownMail(std::shared_ptr<Mail> mail, std::shared_ptr<shm::SharedGroup> host)
      : mail_(std::move(mail)), host_(std::move(host)) {}

  int64_t rank() const override { return mail_->rank(); }
  int64_t size() const override { return mail_->size(); }
  std::unique_ptr<Letter> send(const at::Tensor& bytes, int64_t to) override {
    return shown(mail_->send(bytes, to));
  }
  std::unique_ptr<Letter> receive(const at::Tensor& bytes, int64_t from) override {
    return shown(mail_->receive(bytes, from));
  }
  bool takes_shorter() const override { return mail_->takes_shorter(); }
  std::unique_ptr<Letter> receive_up_to(const at::Tensor& bytes, int64_t from) override {
    return shown(mail_->receive_up_to(bytes, from));
  }

 private:
  std::unique_ptr<Letter> shown(std::unique_ptr<Letter> letter) const {
    return std::make_unique<ShownLetter>(std::move(letter), host_);
  }

  std::shared_ptr<Mail> mail_;
  std::shared_ptr<shm::SharedGroup> host_;
};

class ShownOffice : public MailOffice {
 public:
  ShownOffice(std::shared_ptr<MailOffice> office, std::shared_ptr<shm::SharedGroup> host)
      : office_(std::move(office)), host_(std::move(host)) {}

  int64_t rank() const override { return office_->rank(); }
  int64_t size() const override { return office_->size(); }
  Opened open(const Subject& subject, Lengths lengths) override {
    Opened opened = office_->open(subject, lengths);
    opened.mail = std::make_shared<ShownMail>(std::move(opened.mail), host_);
    return opened;
  }
  std::string give_up(int64_t rank, const std::string& why) override { return office_->give_up(rank, why); }
  std::function<void()> idle_work() override { return office_->idle_work(); }

 private:
  std::shared_ptr<MailOffice> office_;
  std::shared_ptr<shm::SharedGroup> host_;
};

}  // namespace

std::shared_ptr<MailOffice> with_shown_waits(std::shared_ptr<MailOffice> office,
                                             std::shared_ptr<shm::SharedGroup> host) {
  return std::make_shared<ShownOffice>(std::move(office), std::move(host));
}

}  // namespace shardway
