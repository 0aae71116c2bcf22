#include "transport/ipc/ipc.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "cuda/driver.h"
#include "transport/common/repeated_moves.h"
#include "transport/common/starting_stream.h"
#include "transport/common/two_routes.h"
#include "transport/ipc/ipc_engine.h"

namespace shardway {
namespace {

// What an H200 reads while streams meet, about: 13 µs.
constexpr int64_t kReadInPlaceOfMeeting = int64_t{48} << 20;

// Everything is queued already. It is over when the stream has done it.
class QueuedTransfer : public Transfer {
 public:
  QueuedTransfer(std::shared_ptr<IpcEngine> engine, std::span<const RouteCall> calls)
      : engine_(std::move(engine)), started_(calls[0].x) {
    for (const RouteCall& call : calls) tensors_.insert(tensors_.end(), {call.x, call.out});
  }

  void finish() override {
    started_.follow();
    for (const at::Tensor& t : tensors_) started_.lend({t});
    engine_->check();
  }

  bool is_over() override { return started_.is_idle(); }

 private:
  std::shared_ptr<IpcEngine> engine_;
  std::vector<at::Tensor> tensors_;
  StartingStream started_;
};

class RepeatedRoutes : public RepeatedMoves {
 public:
  RepeatedRoutes(std::shared_ptr<IpcEngine> engine, std::vector<RouteCall> calls)
      : engine_(std::move(engine)), kept_(IpcEngine::keep(std::move(calls))) {}

  void run(const Subject& subject) override {
    engine_->run_again(*kept_, subject);
    engine_->check();
  }
  void fix(const Subject& subject) override { engine_->fix(*kept_, subject); }

 private:
  std::shared_ptr<IpcEngine> engine_;
  std::shared_ptr<IpcEngine::Kept> kept_;
};

class IpcTransport : public Transport, public RepeatsMoves {
 public:
  explicit IpcTransport(std::shared_ptr<ShmEngine> memory)
      : memory_(memory), engine_(std::make_shared<IpcEngine>(std::move(memory))) {}

  int64_t rank() const override { return memory_->group().rank(); }
  int64_t size() const override { return memory_->group().size(); }
  std::chrono::milliseconds timeout() override { return memory_->group().timeout(); }

  std::optional<std::string> refuses(c10::Device device) override {
    if (!device.is_cuda()) return "the tensor is on " + device.str() + ", which is not a GPU";
    const std::string& why = cuda::Driver::why_none();
    return why.empty() ? std::nullopt : std::optional(why);
  }

  int64_t slot_bytes() override { return ShmEngine::slot_bytes(); }

  // To read all inputs on every rank takes more of the memory's bandwidth, and one meeting of streams less.
  bool combines_whole(const at::Tensor& x) override {
    return x.defined() && static_cast<int64_t>(x.nbytes()) * size() * (size() - 1) <= kReadInPlaceOfMeeting;
  }

  Blocks all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject) override {
    return memory_->all_gather_block(mine, row_bytes, subject);
  }

  std::unique_ptr<Transfer> start(const Route& route, const at::Tensor& x, const at::Tensor& out,
                                  const KnownInputs& /*known*/, const Subject& subject) override {
    return started({{.route = &route, .x = x, .out = out}}, subject);
  }

  // A kernel takes parts from where they lie, so nothing has to be packed.
  std::unique_ptr<Transfer> start_all(const std::vector<RouteCall>& calls, const Subject& subject) override {
    if (calls.empty()) return std::make_unique<FinishedTransfer>();
    return started(calls, subject);
  }

  std::unique_ptr<RepeatedMoves> repeat(std::vector<RouteCall> calls) override {
    const auto is_in_two = [this](const RouteCall& call) { return runs_in_two(*call.route, call.x, *this); };
    const auto plain = std::stable_partition(calls.begin(), calls.end(), is_in_two);
    std::vector<std::unique_ptr<RepeatedMoves>> all;
    for (auto call = calls.begin(); call != plain; ++call) {
      const bool is_contiguous = call->x.is_contiguous() && call->out.is_contiguous();
      all.push_back(is_contiguous ? repeated_in_two(*this, *call) : started_again(*this, {*call}));
    }
    calls.erase(calls.begin(), plain);
    if (!calls.empty()) all.push_back(std::make_unique<RepeatedRoutes>(engine_, std::move(calls)));
    return all.size() == 1 ? std::move(all[0]) : moves_in_turn(std::move(all));
  }

 private:
  std::unique_ptr<Transfer> started(const std::vector<RouteCall>& calls, const Subject& subject) {
    auto transfer = std::make_unique<QueuedTransfer>(engine_, calls);
    engine_->run(calls, subject);
    return transfer;
  }

  std::shared_ptr<ShmEngine> memory_;
  std::shared_ptr<IpcEngine> engine_;
};

}  // namespace

std::shared_ptr<Transport> ipc_transport_of(const std::shared_ptr<ShmEngine>& memory) {
  static auto& mutex = *new std::mutex;  // never destroyed: threads may call as the process ends
  static auto& made = *new std::map<const ShmEngine*, std::weak_ptr<Transport>>;
  const std::lock_guard lock(mutex);
  std::erase_if(made, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<Transport>& known = made[memory.get()];
  std::shared_ptr<Transport> transport = known.lock();
  if (!transport) known = transport = std::make_shared<IpcTransport>(memory);
  return transport;
}

}  // namespace shardway
