#include "transport/c10d/c10d.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "transport/c10d/backend_mail.h"
#include "transport/c10d/mail_transfer.h"
#include "transport/c10d/native_transfer.h"
#include "transport/c10d/virtual_group.h"

namespace shardway {
namespace {

class C10dTransport : public Transport {
 public:
  C10dTransport(c10::intrusive_ptr<c10d::ProcessGroup> group, std::shared_ptr<CallQueue> queue, MailRoom room)
      : group_(std::move(group)),
        queue_(std::move(queue)),
        room_(std::move(room)),
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
    return slot_bytes_by_mail(takes_shorter(*backend(c10::DeviceType::CPU)), size_);
  }

  std::unique_ptr<Posted> post(std::function<void()> call) override { return queue_->post(std::move(call)); }

  bool has_own(const Route& route, const at::Tensor& x) override {
    return !x.is_cpu() && runs_natively(route, x);
  }

  Blocks all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject) override {
    Blocks blocks;
    in_turn([&] { blocks = exchanged_block(mine, row_bytes, subject); });
    return blocks;
  }

  std::unique_ptr<Transfer> start(const Route& route, const at::Tensor& x, const at::Tensor& out,
                                  const KnownInputs& known, const Subject& subject) override {
    auto engine = backend(x.device().type());
    if (!x.is_cpu()) return start_natively(*engine, route, x, out);
    std::unique_ptr<Transfer> transfer;
    in_turn([&] {
      auto opened = open_mail(std::move(engine), room_, subject, Lengths::are_known);
      transfer = start_by_mail(std::move(opened.mail), route, x, out, known);
    });
    return transfer;
  }

 private:
  // A caller that is interrupted while others use the group ends it for all.
  void in_turn(const std::function<void()>& call) {
    queue_->in_turn(call, [this] { room_.lifelines->tell_interrupt(); });
  }

  Blocks exchanged_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject);
  at::Tensor exchanged_on_device(const at::Tensor& mine, int64_t row_bytes);

  bool serves(c10::DeviceType type) const {
    const auto devices = group_->getDeviceTypes();
    return std::any_of(devices.begin(), devices.end(), [type](c10::Device d) { return d.type() == type; });
  }

  // The backend for a device that the group serves. Throws c10::ValueError if there is none.
  c10::intrusive_ptr<c10d::Backend> backend(c10::DeviceType type) const {
    auto found = backend_of(*group_, type);
    TORCH_CHECK_VALUE(found != nullptr, "the process group (", group_->getBackendName(),
                      ") has no engine for ", c10::DeviceTypeName(type, true), " tensors");
    return found;
  }

  // gloo claims to be an engine for CUDA tensors, but supports neither parts of different sizes nor an
  // all-to-all of them.
  bool is_gloo_on_device(c10::DeviceType type) const {
    return type != c10::DeviceType::CPU && backend(type)->getBackendName() == "gloo";
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<CallQueue> queue_;
  MailRoom room_;
  int64_t rank_;
  int64_t size_;
  std::optional<c10::Stream> aside_;  // for blocks on a device
};

Blocks C10dTransport::exchanged_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject) {
  if (serves(c10::DeviceType::CPU)) {
    const auto opened = open_mail(backend(c10::DeviceType::CPU), room_, subject, Lengths::vary);
    return all_gather_block_by_mail(*opened.mail, mine, row_bytes, opened.number);
  }
  const uint64_t number = room_.ledger->next();
  return {.rows = exchanged_on_device(mine, row_bytes),
          .bytes = c10::SmallVector<int64_t, 8>(static_cast<size_t>(size_), row_bytes),
          .number = number};
}

// Runs on a stream of its own: the host waits for the blocks and for the group's collectives before them, but
// not for other work on the caller's stream.
at::Tensor C10dTransport::exchanged_on_device(const at::Tensor& mine, int64_t row_bytes) {
  const c10::DeviceType type = group_->getDeviceTypes().front().type();
  const c10::impl::VirtualGuardImpl devices(type);
  const c10::Device device = group_->getBoundDeviceId().value_or(devices.getDevice());
  if (!aside_ || aside_->device() != device) aside_ = devices.getStreamFromGlobalPool(device);
  const c10::StreamGuard guard(*aside_);
  at::Tensor there = at::constant_pad_nd(mine, {0, row_bytes - mine.numel()}).to(device);
  at::Tensor rows = at::empty({size_, row_bytes}, there.options());
  backend(type)->_allgather_base(rows, there)->wait();
  return rows.cpu();
}

}  // namespace

std::shared_ptr<Transport> make_c10d_transport(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                               std::shared_ptr<CallQueue> queue, MailRoom room) {
  return std::make_shared<C10dTransport>(std::move(group), std::move(queue), std::move(room));
}

}  // namespace shardway
