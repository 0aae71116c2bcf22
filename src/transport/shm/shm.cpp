#include "transport/shm/shm.h"

#include <ATen/core/Tensor.h>

#include "shm/board/thresholds.h"
#include "transport/common/transport.h"
#include "transport/kept/kept_calls.h"
#include "transport/shm/list_call.h"
#include "transport/shm/repeated_list.h"
#include "transport/shm/shares_memory.h"
#include "transport/shm/shm_engine.h"

namespace shardway {
namespace {

class ShmTransport : public Transport, public SharesMemory, public RepeatsMoves {
 public:
  ShmTransport(std::shared_ptr<ShmEngine> engine, std::vector<int64_t> global_ranks)
      : rank_(engine->group().rank()),
        size_(engine->group().size()),
        engine_(std::move(engine)),
        global_ranks_(std::move(global_ranks)) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::vector<int64_t> global_ranks() override { return global_ranks_; }
  std::chrono::milliseconds timeout() override { return engine_->group().timeout(); }
  std::shared_ptr<ShmEngine> shm_engine() override { return engine_; }
  KeptCalls* kept_calls() override { return &kept_calls_; }

  std::optional<std::string> refuses(c10::Device device) override {
    if (device.is_cpu()) return std::nullopt;
    return "the tensor is on " + device.str() + ", but the group moves CPU tensors only";
  }

  int64_t slot_bytes() override { return ShmEngine::slot_bytes(); }
  bool compares_every_call(const at::Tensor& /*x*/) override { return true; }
  bool has_thread() override { return true; }

  bool has_own(const Route& route, const at::Tensor& /*x*/) override {
    return route.pattern == Pattern::all_reduce;
  }
  bool combines_whole(const at::Tensor& /*x*/) override { return size_ <= shm::kRanksOfPasses; }

  std::unique_ptr<Posted> post(std::function<void()> call) override { return engine_->post(std::move(call)); }

  bool moves_in_meeting(const at::Tensor& /*x*/) override { return true; }

  void meet(const Opening& opening, const Subject& subject, const Decide& decide) override {
    engine_->meet(opening, subject, decide);
  }

  Blocks all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject) override {
    return engine_->all_gather_block(mine, row_bytes, subject);
  }

  // Makes the moves before it returns: the caller has nothing else to do, or is the engine's thread.
  std::unique_ptr<Transfer> start(const Route& route, const at::Tensor& x, const at::Tensor& out,
                                  const KnownInputs& known, const Subject& subject) override {
    if (is_all_known(known, size_)) {
      ShmEngine::run_alone(route, x, out, known);
    } else {
      engine_->run(route, x, out, known, subject);
    }
    return std::make_unique<FinishedTransfer>();
  }

  std::unique_ptr<Transfer> start_all(const std::vector<RouteCall>& calls, const Subject& subject) override {
    const ListCall list(calls, *this);
    engine_->run_all(list.calls(), subject);
    list.land();
    return std::make_unique<FinishedTransfer>();
  }

  std::unique_ptr<RepeatedMoves> repeat(std::vector<RouteCall> calls) override {
    return std::make_unique<RepeatedList>(std::move(calls), *this, engine_);
  }

 private:
  int64_t rank_;
  int64_t size_;
  std::shared_ptr<ShmEngine> engine_;
  std::vector<int64_t> global_ranks_;
  KeptCalls kept_calls_{*this};
};

}  // namespace

std::shared_ptr<Transport> make_shm_transport(std::shared_ptr<shm::SharedGroup> group, PartOfGroup part) {
  return make_shm_transport(std::make_shared<ShmEngine>(std::move(group), std::move(part)));
}

std::shared_ptr<Transport> make_shm_transport(std::shared_ptr<ShmEngine> engine,
                                              std::vector<int64_t> global_ranks) {
  return std::make_shared<ShmTransport>(std::move(engine), std::move(global_ranks));
}

std::shared_ptr<ShmEngine> shm_engine_of(Transport& transport) {
  auto* shares = dynamic_cast<SharesMemory*>(&transport);
  return shares != nullptr ? shares->shm_engine() : nullptr;
}

}  // namespace shardway
