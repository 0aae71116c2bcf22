#include "transport/c10d/c10d.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "transport/c10d/mail_transfer.h"
#include "transport/c10d/native_transfer.h"
#include "transport/c10d/virtual_group.h"

namespace shardway {
namespace {

// Distinguishes the messages of one call from those of another: the call's number and its mark.
struct CallKey {
  uint64_t number = 0;
  uint64_t mark = 0;
};

// Whether both sides know how long a message is.
enum class Lengths : uint8_t { are_known, vary };

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

// The messages of one call. If one does not arrive, the group is lost: late messages would be taken for later
// ones.
class BackendMail : public Mail, public std::enable_shared_from_this<BackendMail> {
 public:
  BackendMail(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<Ledger> ledger, const CallKey& key,
              Lengths lengths)
      : backend_(std::move(backend)), ledger_(std::move(ledger)), key_(key), lengths_(lengths) {}

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

  // gloo and MPI accept a message that is shorter than its buffer; for other engines this is unknown.
  static bool takes_shorter(const c10d::Backend& backend) {
    const std::string name = backend.getBackendName();
    return name == "gloo" || name == "mpi";
  }
  bool takes_shorter() const override { return takes_shorter(*backend_); }

  std::unique_ptr<Letter> receive_up_to(const at::Tensor& bytes, int64_t from) override {
    return receive(bytes, from);
  }

  // Runs `body`; the engine's error becomes one that names the peer.
  template <class Body>
  auto reaching(int64_t peer, Body&& body) {
    try {
      return body();
    } catch (const std::exception& error) {
      const std::string why =
          c10::str("rank ", peer, " could not be reached: ", error.what(), hint(), " (rank ", rank(), ")");
      ledger_->lose(why);
      TORCH_CHECK_WITH(DistBackendError, false, why);
    }
  }

 private:
  class WorkMessage : public Letter {
   public:
    WorkMessage(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<BackendMail> mail, int64_t peer)
        : work_(std::move(work)), mail_(std::move(mail)), peer_(peer) {}

    void wait() override {
      mail_->reaching(peer_, [&] { work_->wait(); });
    }

   private:
    c10::intrusive_ptr<c10d::Work> work_;
    std::shared_ptr<BackendMail> mail_;
    int64_t peer_;
  };

  template <class Post>
  std::unique_ptr<Letter> message(int64_t peer, Post&& post) {
    return std::make_unique<WorkMessage>(reaching(peer, post), shared_from_this(), peer);
  }

  int tag(const at::Tensor& bytes) const {
    return tag_of(key_, lengths_ == Lengths::vary ? kAnyLength : bytes.numel());
  }

  const char* hint() const {
    return lengths_ == Lengths::vary ? ""
                                     : "; if it is alive, it is in another call or means other sizes, which "
                                       "SHARDWAY_CHECK=1 tells";
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::shared_ptr<Ledger> ledger_;
  CallKey key_;
  Lengths lengths_;
};

class C10dTransport : public Transport {
 public:
  C10dTransport(c10::intrusive_ptr<c10d::ProcessGroup> group, std::shared_ptr<CallQueue> queue,
                std::shared_ptr<Ledger> ledger)
      : group_(std::move(group)),
        queue_(std::move(queue)),
        ledger_(std::move(ledger)),
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
    return slot_bytes_by_mail(BackendMail::takes_shorter(*backend(c10::DeviceType::CPU)), size_);
  }

  std::unique_ptr<Posted> post(std::function<void()> call) override { return queue_->post(std::move(call)); }

  bool has_own(const Route& route, const at::Tensor& x) override {
    return !x.is_cpu() && runs_natively(route, x);
  }

  Blocks all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject) override {
    Blocks blocks;
    queue_->in_turn([&] { blocks = exchanged_block(mine, row_bytes, subject); });
    return blocks;
  }

  std::unique_ptr<Transfer> start(const Route& route, const at::Tensor& x, const at::Tensor& out,
                                  const KnownInputs& known, const Subject& subject) override {
    auto engine = backend(x.device().type());
    if (!x.is_cpu()) return start_natively(*engine, route, x, out);
    std::unique_ptr<Transfer> transfer;
    queue_->in_turn([&] {
      const CallKey key{.number = ledger_->next(), .mark = subject.mark};
      auto mail = std::make_shared<BackendMail>(std::move(engine), ledger_, key, Lengths::are_known);
      transfer = start_by_mail(std::move(mail), route, x, out, known);
    });
    return transfer;
  }

 private:
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
  std::shared_ptr<Ledger> ledger_;
  int64_t rank_;
  int64_t size_;
  std::optional<c10::Stream> aside_;  // for blocks on a device
};

Blocks C10dTransport::exchanged_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject) {
  const uint64_t number = ledger_->next();
  if (serves(c10::DeviceType::CPU)) {
    const CallKey key{.number = number, .mark = subject.mark};
    const auto mail =
        std::make_shared<BackendMail>(backend(c10::DeviceType::CPU), ledger_, key, Lengths::vary);
    return all_gather_block_by_mail(*mail, mine, row_bytes, number);
  }
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
                                               std::shared_ptr<CallQueue> queue,
                                               std::shared_ptr<Ledger> ledger) {
  return std::make_shared<C10dTransport>(std::move(group), std::move(queue), std::move(ledger));
}

}  // namespace shardway
