#include "hosts_backend/hosts_backend.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "backend/backend.h"
#include "backend/meeting.h"
#include "backend/run_or_post.h"
#include "c10d_calls/reductions.h"
#include "c10d_calls/routed_collectives.h"

namespace shardway::backend {
namespace {

// A call is checked as on one host, but nobody is told.
class HostsCollectives : public RoutedCollectives {
 public:
  enum class Aim : uint8_t { check, move };

  HostsCollectives(Transport& transport, Aim aim)
      : RoutedCollectives(transport, c10::DeviceType::CPU), rank_(transport.rank()), aim_(aim) {}

 private:
  bool agrees(Collective call, const std::function<Terms()>& terms) override {
    try {
      terms();
    } catch (const c10::ValueError& error) {
      TORCH_CHECK_VALUE(false, name_of(call), ": ", error.what_without_backtrace(), " (rank ", rank_, ")");
    }
    return aim_ == Aim::move;
  }

  void on_cpu(const std::function<void(Collectives&)>& /*call*/) override {
    TORCH_INTERNAL_ASSERT(false, "the call is gloo's");
  }

  int64_t rank_;
  Aim aim_;
};

}  // namespace

HostsBackend::HostsBackend(c10::intrusive_ptr<Options> options, c10::intrusive_ptr<c10d::Backend> gloo,
                           const shm::HostGroups& groups)
    : CallsBackend(gloo->getRank(), gloo->getSize(), std::move(options)),
      gloo_(std::move(gloo)),
      hosts_(make_hosts_transport(groups, make_mail_office(gloo_, room_, hosts_in_words(groups)), queue_,
                                  options_->timeout)) {
  init();
}

HostsBackend::~HostsBackend() { room_.lifelines->leave(); }

// A call is checked here, all tensors of a list before the first moves, and then made by whoever drives it.
// It keeps what it needs, because the thread may run it after the backend is gone.
WorkPtr HostsBackend::launch(const CallOptions& options, const Tensors& inputs, const Tensors& outputs,
                             std::function<void(Collectives&)> call) {
  HostsCollectives checks(*hosts_.transport, HostsCollectives::Aim::check);
  identity_->explain([&] { call(checks); });
  TORCH_CHECK_WITH(DistBackendError, !is_destroyed_, options.name(), ": the group was destroyed (rank ",
                   rank_, ")");
  auto work = c10::make_intrusive<CallWork>(rank_, options.type, options.title, identity_, inputs, outputs,
                                            ++sequence_number_);
  auto run = [transport = hosts_.transport, identity = identity_, call = std::move(call)] {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    HostsCollectives collectives(*transport, HostsCollectives::Aim::move);
    identity->explain([&] { call(collectives); });
  };
  // A call made by a callback of a future runs at once, because the callback may wait for it.
  run_or_post(work, !options.is_async || queue_->is_own_thread(), std::move(run),
              [this](auto later) { queue_->post(std::move(later)); });
  return work;
}

c10d::Backend* HostsBackend::other_for(const c10d::ReduceOp& op) { return op_of(op) ? nullptr : gloo_.get(); }

WorkPtr HostsBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return gloo_->allreduce_sparse(tensors, opts);
}

WorkPtr HostsBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) {
  return gloo_->allgather_coalesced(outputs, inputs, opts);
}

WorkPtr HostsBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                             const c10d::GatherOptions& opts) {
  return gloo_->gather(outputs, inputs, opts);
}

WorkPtr HostsBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                              const c10d::ScatterOptions& opts) {
  return gloo_->scatter(outputs, inputs, opts);
}

WorkPtr HostsBackend::barrier(const c10d::BarrierOptions& opts) { return gloo_->barrier(opts); }

void HostsBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  gloo_->monitoredBarrier(opts, wait_all_ranks);
}

WorkPtr HostsBackend::send(Tensors& tensors, int to, int tag) { return gloo_->send(tensors, to, tag); }
WorkPtr HostsBackend::recv(Tensors& tensors, int from, int tag) { return gloo_->recv(tensors, from, tag); }
WorkPtr HostsBackend::recvAnysource(Tensors& tensors, int tag) { return gloo_->recvAnysource(tensors, tag); }

void HostsBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  gloo_->setTimeout(timeout);
}

c10d::ErrorType HostsBackend::getError() {
  try {
    room_.ledger->check();
  } catch (const c10::DistBackendError&) {
    return c10d::ErrorType::COMM_ERROR;
  }
  return is_destroyed_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void HostsBackend::abort() { hosts_.give_up("it aborted the group"); }

// Posted calls run first.
void HostsBackend::shutdown() {
  if (is_destroyed_.exchange(true)) return;
  queue_->in_turn([&] {
    hosts_.leave();
    room_.lifelines->leave();
  });
  gloo_->shutdown();
}

c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                               int size, const c10::intrusive_ptr<Options>& options,
                                               const MakeEngine& make_gloo) {
  Met met;
  Identity(options->group_name, options->global_ranks_in_group).explain([&] {
    met = meet(*store, rank, size, options->timeout);
  });
  if (met.hosts) return c10::make_intrusive<HostsBackend>(options, make_gloo(met.name + "gloo"), *met.hosts);
  return c10::make_intrusive<Backend>(store, rank, size, options,
                                      std::make_shared<ShmEngine>(std::move(met.group)));
}

}  // namespace shardway::backend
