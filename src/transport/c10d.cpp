#include "transport/c10d.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "transport/mail_transfer.h"
#include "transport/native_transfer.h"

namespace shardway {
namespace {

// Tags that other users of the group are unlikely to take. One is enough: between two ranks messages of
// one tag arrive in order.
constexpr int kMailTag = 0x5a4d0001;

// Runs `body`; the engine's error becomes one that names the peer.
template <class Body>
auto reaching(int64_t peer, int64_t rank, Body&& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    TORCH_CHECK_WITH(DistBackendError, false, "rank ", peer, " could not be reached: ", error.what(),
                     " (rank ", rank, ")");
  }
}

class WorkMessage : public Message {
 public:
  WorkMessage(c10::intrusive_ptr<c10d::Work> work, int64_t rank, int64_t peer)
      : work_(std::move(work)), rank_(rank), peer_(peer) {}

  void wait() override {
    reaching(peer_, rank_, [&] { work_->wait(); });
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  int64_t rank_;
  int64_t peer_;
};

class BackendMail : public Mail {
 public:
  explicit BackendMail(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {}

  int64_t rank() const override { return backend_->getRank(); }
  int64_t size() const override { return backend_->getSize(); }

  std::unique_ptr<Message> send(const at::Tensor& bytes, int64_t to) override {
    std::vector<at::Tensor> tensors{bytes};
    return message(to, [&] { return backend_->send(tensors, static_cast<int>(to), kMailTag); });
  }

  std::unique_ptr<Message> receive(const at::Tensor& bytes, int64_t from) override {
    std::vector<at::Tensor> tensors{bytes};
    return message(from, [&] { return backend_->recv(tensors, static_cast<int>(from), kMailTag); });
  }

  // gloo and MPI take a message that is shorter than its buffer; of others it is not known.
  bool takes_shorter() const override {
    const std::string name = backend_->getBackendName();
    return name == "gloo" || name == "mpi";
  }

  std::unique_ptr<Message> receive_up_to(const at::Tensor& bytes, int64_t from) override {
    return receive(bytes, from);
  }

 private:
  template <class Post>
  std::unique_ptr<Message> message(int64_t peer, Post&& post) {
    return std::make_unique<WorkMessage>(reaching(peer, rank(), post), rank(), peer);
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
};

class C10dTransport : public Transport {
 public:
  C10dTransport(c10::intrusive_ptr<c10d::ProcessGroup> group, std::shared_ptr<Turns> turns)
      : group_(std::move(group)),
        turns_(std::move(turns)),
        rank_(group_->getRank()),
        size_(group_->getSize()) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }

  std::optional<std::string> refuses(c10::Device device) override {
    if (serves(device.type())) return std::nullopt;
    return "the tensor is on " + device.str() + ", for which the group's backend (" +
           group_->getBackendName() + ") has no engine";
  }

  int64_t slot_bytes() override {
    if (!serves(c10::DeviceType::CPU)) return 0;  // a payload on a device stays there
    return slot_bytes_by_mail(BackendMail(group_->getBackend(c10::DeviceType::CPU)));
  }

  std::unique_ptr<Posted> post(std::function<void()> call) override { return turns_->post(std::move(call)); }

  bool has_own(const Route& route, const at::Tensor& x) override {
    return !x.is_cpu() && runs_natively(route, x);
  }

  at::Tensor all_gather_block(const at::Tensor& mine, int64_t row_bytes) override {
    at::Tensor rows;
    turns_->in_turn([&] { rows = exchanged_block(mine, row_bytes); });
    return rows;
  }

  std::unique_ptr<Transfer> start(const Route& route, const at::Tensor& x, const at::Tensor& out,
                                  const KnownInputs& known) override {
    auto backend = group_->getBackend(x.device().type());
    if (!x.is_cpu()) return start_natively(*backend, route, x, out, known);
    std::unique_ptr<Transfer> transfer;
    turns_->in_turn([&] {
      transfer = start_by_mail(std::make_shared<BackendMail>(std::move(backend)), route, x, out, known);
    });
    return transfer;
  }

 private:
  at::Tensor exchanged_block(const at::Tensor& mine, int64_t row_bytes);

  bool serves(c10::DeviceType type) const {
    const auto devices = group_->getDeviceTypes();
    return std::any_of(devices.begin(), devices.end(), [type](c10::Device d) { return d.type() == type; });
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<Turns> turns_;
  int64_t rank_;
  int64_t size_;
};

at::Tensor C10dTransport::exchanged_block(const at::Tensor& mine, int64_t row_bytes) {
  if (serves(c10::DeviceType::CPU)) {
    BackendMail mail(group_->getBackend(c10::DeviceType::CPU));
    return all_gather_block_by_mail(mail, mine, row_bytes);
  }
  const auto device = group_->getDeviceTypes().front();
  at::Tensor there = at::constant_pad_nd(mine, {0, row_bytes - mine.numel()}).to(device);
  at::Tensor rows = at::empty({size_, row_bytes}, there.options());
  group_->getBackend(device.type())->_allgather_base(rows, there)->wait();
  return rows.cpu();
}

}  // namespace

std::shared_ptr<Transport> make_c10d_transport(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                               std::shared_ptr<Turns> turns) {
  return std::make_shared<C10dTransport>(std::move(group), std::move(turns));
}

}  // namespace shardway
