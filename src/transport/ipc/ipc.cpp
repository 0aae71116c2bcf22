#include "transport/ipc/ipc.h"

#include <ATen/ATen.h>

#include "cuda/driver.h"
#include "transport/common/starting_stream.h"
#include "transport/ipc/ipc_engine.h"

namespace shardway {
namespace {

// Everything is queued already.
class QueuedTransfer : public Transfer {
 public:
  QueuedTransfer(std::shared_ptr<IpcEngine> engine, const at::Tensor& x, const at::Tensor& out)
      : engine_(std::move(engine)), x_(x), out_(out), started_(x) {}

  void finish() override {
    started_.follow();
    started_.lend({x_, out_});
    engine_->check();
  }

 private:
  std::shared_ptr<IpcEngine> engine_;
  at::Tensor x_;
  at::Tensor out_;
  StartingStream started_;
};

class IpcTransport : public Transport {
 public:
  explicit IpcTransport(std::shared_ptr<ShmEngine> memory)
      : memory_(memory), engine_(std::make_shared<IpcEngine>(std::move(memory))) {}

  int64_t rank() const override { return memory_->group().rank(); }
  int64_t size() const override { return memory_->group().size(); }
  std::chrono::milliseconds timeout() override { return memory_->group().timeout(); }

  std::optional<std::string> refuses(c10::Device device) override {
    if (!device.is_cuda()) return "the tensor is on " + device.str() + ", which is no GPU";
    const std::string& why = cuda::Driver::why_none();
    return why.empty() ? std::nullopt : std::optional(why);
  }

  int64_t slot_bytes() override { return ShmEngine::slot_bytes(); }

  Blocks all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject) override {
    return memory_->all_gather_block(mine, row_bytes, subject);
  }

  std::unique_ptr<Transfer> start(const Route& route, const at::Tensor& x, const at::Tensor& out,
                                  const KnownInputs& /*known*/, const Subject& subject) override {
    auto transfer = std::make_unique<QueuedTransfer>(engine_, x, out);
    engine_->run(route, x, out, subject);
    return transfer;
  }

 private:
  std::shared_ptr<ShmEngine> memory_;
  std::shared_ptr<IpcEngine> engine_;
};

}  // namespace

std::shared_ptr<Transport> make_ipc_transport(std::shared_ptr<ShmEngine> memory) {
  return std::make_shared<IpcTransport>(std::move(memory));
}

}  // namespace shardway
