#include "transport/c10d.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

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
    if (!serves(device.type()) || is_gloo_on_device(device.type())) {
      return "the tensor is on " + device.str() + ", for which the group's backend (" +
             group_->getBackendName() + ") has no engine";
    }
    const auto bound = group_->getBoundDeviceId();
    const bool is_elsewhere = bound && bound->type() == device.type() && bound->index() != device.index();
    if (device.is_cpu() || !is_elsewhere) return std::nullopt;
    return "the tensor is on " + device.str() + ", but the group is bound to " + bound->str();
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
    if (!x.is_cpu()) return start_natively(*backend, route, x, out);
    std::unique_ptr<Transfer> transfer;
    turns_->in_turn([&] {
      transfer = start_by_mail(std::make_shared<BackendMail>(std::move(backend)), route, x, out, known);
    });
    return transfer;
  }

 private:
  at::Tensor exchanged_block(const at::Tensor& mine, int64_t row_bytes);
  at::Tensor exchanged_on_device(const at::Tensor& mine, int64_t row_bytes);

  bool serves(c10::DeviceType type) const {
    const auto devices = group_->getDeviceTypes();
    return std::any_of(devices.begin(), devices.end(), [type](c10::Device d) { return d.type() == type; });
  }

  // gloo calls itself an engine for CUDA tensors, but knows neither parts of several sizes nor an all-to-all
  // of them.
  bool is_gloo_on_device(c10::DeviceType type) const {
    return type != c10::DeviceType::CPU && group_->getBackend(type)->getBackendName() == "gloo";
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<Turns> turns_;
  int64_t rank_;
  int64_t size_;
  std::optional<c10::Stream> aside_;  // for blocks on a device
};

at::Tensor C10dTransport::exchanged_block(const at::Tensor& mine, int64_t row_bytes) {
  if (serves(c10::DeviceType::CPU)) {
    BackendMail mail(group_->getBackend(c10::DeviceType::CPU));
    return all_gather_block_by_mail(mail, mine, row_bytes);
  }
  return exchanged_on_device(mine, row_bytes);
}

// On a stream of its own: the host waits for the blocks and for the group's collectives before them, not for
// what else the caller's stream has to do.
at::Tensor C10dTransport::exchanged_on_device(const at::Tensor& mine, int64_t row_bytes) {
  const c10::DeviceType type = group_->getDeviceTypes().front().type();
  const c10::impl::VirtualGuardImpl devices(type);
  const c10::Device device = group_->getBoundDeviceId().value_or(devices.getDevice());
  if (!aside_ || aside_->device() != device) aside_ = devices.getStreamFromGlobalPool(device);
  const c10::StreamGuard guard(*aside_);
  at::Tensor there = at::constant_pad_nd(mine, {0, row_bytes - mine.numel()}).to(device);
  at::Tensor rows = at::empty({size_, row_bytes}, there.options());
  group_->getBackend(type)->_allgather_base(rows, there)->wait();
  return rows.cpu();
}

}  // namespace

std::shared_ptr<Transport> make_c10d_transport(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                               std::shared_ptr<Turns> turns) {
  return std::make_shared<C10dTransport>(std::move(group), std::move(turns));
}

}  // namespace shardway
