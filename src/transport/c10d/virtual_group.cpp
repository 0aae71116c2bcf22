#include "transport/c10d/virtual_group.h"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "transport/c10d/all_to_all_transfer.h"
#include "transport/c10d/mail_transfer.h"
#include "transport/common/transport.h"

namespace shardway {
namespace {

// torch 2.13 renames these methods; it still accepts the old names.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

class VirtualTransport : public Transport {
 public:
  VirtualTransport(c10::intrusive_ptr<c10d::ProcessGroup> group, std::shared_ptr<CallQueue> queue,
                   std::shared_ptr<Ledger> ledger)
      : group_(std::move(group)),
        queue_(std::move(queue)),
        ledger_(std::move(ledger)),
        rank_(group_->getRank()),
        size_(group_->getSize()) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::optional<std::string> refuses(c10::Device) override { return std::nullopt; }
  int64_t slot_bytes() override { return slot_bytes_by_mail(/*takes_shorter=*/false, size_); }
  std::unique_ptr<Posted> post(std::function<void()> call) override { return queue_->post(std::move(call)); }

  Blocks all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject&) override {
    Blocks blocks;
    queue_->in_turn([&] { blocks = exchanged(mine, row_bytes); });
    return blocks;
  }

  std::unique_ptr<Transfer> start(const Route& route, const at::Tensor& x, const at::Tensor& out,
                                  const KnownInputs& known, const Subject&) override {
    if (is_all_known(known, size_)) return start_by_mail(nullptr, route, x, out, known);
    std::unique_ptr<Transfer> transfer;
    queue_->in_turn([&] {
      transfer = start_by_all_to_all(
          [this](at::Tensor& received, at::Tensor& sent, std::vector<int64_t>& received_bytes,
                 std::vector<int64_t>& sent_bytes) {
            return called("alltoall_base",
                          [&] { return group_->alltoall_base(received, sent, received_bytes, sent_bytes); });
          },
          route, x, out);
    });
    return transfer;
  }

 private:
  Blocks exchanged(const at::Tensor& mine, int64_t row_bytes) {
    Blocks blocks{.rows = at::zeros({size_, row_bytes}, mine.options()),
                  .bytes = c10::SmallVector<int64_t, 8>(static_cast<size_t>(size_), row_bytes),
                  .number = ledger_->next()};
    at::Tensor padded = at::zeros({row_bytes}, mine.options());
    padded.narrow(0, 0, mine.numel()).copy_(mine);
    std::vector<std::vector<at::Tensor>> rows = {blocks.rows.unbind()};
    std::vector<at::Tensor> input = {padded};
    called("allgather", [&] { return group_->allgather(rows, input); })->wait();
    return blocks;
  }

  // If the group lacks a method, torch's own error speaks of a backend; this one names the method.
  template <class Call>
  c10::intrusive_ptr<c10d::Work> called(const char* method, Call&& call) {
    try {
      return call();
    } catch (const c10::DistBackendError&) {
      throw;
    } catch (const c10::Error& error) {
      TORCH_CHECK_VALUE(false, "the process group (", group_->getBackendName(),
                        ") has no engine of torch's, and its own method ", method,
                        " cannot be used: ", error.what_without_backtrace());
    }
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<CallQueue> queue_;
  std::shared_ptr<Ledger> ledger_;
  int64_t rank_;
  int64_t size_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> backend_of(c10d::ProcessGroup& group,
                                             std::optional<c10::DeviceType> device) {
  try {
    return device ? group.getBackend(*device) : group.getDefaultBackend();
  } catch (const c10::Error&) {
    return nullptr;
  }
}

bool is_virtual(c10d::ProcessGroup& group) {
  if (backend_of(group) != nullptr) return false;
  for (const c10::Device device : group.getDeviceTypes()) {
    if (backend_of(group, device.type()) != nullptr) return false;
  }
  return backend_of(group, c10::DeviceType::CPU) == nullptr;
}

std::shared_ptr<Transport> make_virtual_transport(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                  std::shared_ptr<CallQueue> queue,
                                                  std::shared_ptr<Ledger> ledger) {
  return std::make_shared<VirtualTransport>(std::move(group), std::move(queue), std::move(ledger));
}

}  // namespace shardway
