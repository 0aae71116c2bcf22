// Ranks as threads on pretended hosts: they have messages between all of them, and the ranks of a host have a
// group of their own.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "shardway/group.h"
#include "thread_engine.h"
#include "transport/c10d/threads.h"
#include "transport/hosts/engine_mail.h"
#include "transport/hosts/two_level_transport.h"

namespace shardway::testing {

using Labels = std::vector<int64_t>;  // ranks with equal labels share a host

// What all ranks have sent between hosts.
struct Postage {
  std::atomic<int64_t> messages = 0;
  std::atomic<int64_t> bytes = 0;
  std::array<std::atomic<int64_t>, 16> bytes_by_rank = {};
};

class CountedMail : public Mail {
 public:
  CountedMail(std::shared_ptr<Mail> mail, Postage& postage) : mail_(std::move(mail)), postage_(postage) {}

  int64_t rank() const override { return mail_->rank(); }
  int64_t size() const override { return mail_->size(); }
  std::unique_ptr<Letter> send(const at::Tensor& bytes, int64_t to) override {
    ++postage_.messages;
    postage_.bytes += bytes.numel();
    postage_.bytes_by_rank.at(static_cast<size_t>(rank())) += bytes.numel();
    return mail_->send(bytes, to);
  }
  std::unique_ptr<Letter> receive(const at::Tensor& bytes, int64_t from) override {
    return mail_->receive(bytes, from);
  }
  bool takes_shorter() const override { return mail_->takes_shorter(); }
  std::unique_ptr<Letter> receive_up_to(const at::Tensor& bytes, int64_t from) override {
    return mail_->receive_up_to(bytes, from);
  }

 private:
  std::shared_ptr<Mail> mail_;
  Postage& postage_;
};

class CountedOffice : public MailOffice {
 public:
  CountedOffice(std::shared_ptr<MailOffice> office, Postage& postage)
      : office_(std::move(office)), postage_(postage) {}

  int64_t rank() const override { return office_->rank(); }
  int64_t size() const override { return office_->size(); }
  Opened open(const Subject& subject, Lengths lengths) override {
    Opened opened = office_->open(subject, lengths);
    opened.mail = std::make_shared<CountedMail>(std::move(opened.mail), postage_);
    return opened;
  }
  std::string give_up(int64_t rank, const std::string& why) override { return office_->give_up(rank, why); }

 private:
  std::shared_ptr<MailOffice> office_;
  Postage& postage_;
};

// What carries messages between hosts: mail between threads, or an engine, which here may not be called by
// threads of ours.
enum class Between : uint8_t { mail, engine };

struct HostsOptions {
  Labels labels;
  Postage* postage = nullptr;  // to be counted
  Between between = Between::mail;
};

inline void run_on_hosts(const HostsOptions& options, const std::function<void(const Group&)>& body) {
  const HostMap hosts(options.labels);
  const ThreadWorld between(hosts.ranks());
  const auto post = std::make_shared<ThreadPost>(hosts.ranks());
  Postage uncounted;
  const auto office_of = [&](int64_t rank) -> std::shared_ptr<MailOffice> {
    if (options.between == Between::engine) {
      const auto engine = std::make_shared<ThreadEngine>(post, rank);
      engine->serves_any_thread = false;
      return make_mail_office(engine, std::chrono::seconds(30));
    }
    Postage& postage = options.postage != nullptr ? *options.postage : uncounted;
    return std::make_shared<CountedOffice>(between.mail_office(rank), postage);
  };
  std::vector<ThreadWorld> inside;
  for (int64_t host = 0; host < hosts.hosts(); ++host)
    inside.emplace_back(static_cast<int64_t>(hosts.ranks_of(host).size()));
  const auto run = [&](int64_t rank) {
    const ThreadWorld& own = inside[static_cast<size_t>(hosts.host_of(rank))];
    body(Group(make_two_level_transport({.hosts = hosts,
                                         .inside = own.transport(hosts.place_of(rank)),
                                         .between = office_of(rank),
                                         .queue = std::make_shared<CallQueue>(),
                                         .may_use_thread = options.between == Between::mail})));
  };
  run_on_threads(hosts.ranks(), run, [&] {
    between.close();
    for (const ThreadWorld& world : inside) world.close();
  });
}

}  // namespace shardway::testing
