#include "backend/backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <tuple>

#include "backend/facts.h"
#include "backend/meeting.h"
#include "backend/run_or_post.h"
#include "backend/work.h"
#include "c10d_calls/memory_collectives.h"
#include "c10d_calls/routed_collectives.h"
#include "shardway/memory.h"
#include "transport/ipc/ipc.h"
#include "transport/shm/shm_errors.h"

namespace shardway::backend {
namespace {

// Sets a call's own timeout on the group and restores the group's own when the call is over.
class TimeoutForNow {
 public:
  TimeoutForNow(shm::SharedGroup& group, std::chrono::milliseconds timeout,
                const c10d::Backend::Options& options)
      : group_(group), options_(options) {
    group_.set_timeout(timeout);
  }
  ~TimeoutForNow() { group_.set_timeout(options_.timeout); }
  TimeoutForNow(const TimeoutForNow&) = delete;
  TimeoutForNow& operator=(const TimeoutForNow&) = delete;

 private:
  shm::SharedGroup& group_;
  const c10d::Backend::Options& options_;
};

// Runs `body`. If a peer wrote an invalid header, aborts the group so that the others are told.
template <class Body>
void ended_if_bad(shm::SharedGroup& group, Body&& body) {
  try {
    body();
  } catch (const shm::BadHeader&) {
    group.abort();
    throw;
  }
}

// How the calls of CPU tensors are made. Refers to what belongs to the backend.
struct OnCpu {
  ShmEngine& engine;
  Table& table;
  const c10d::Backend::Options& options;
  const Identity& identity;
  std::chrono::milliseconds timeout;
  const char* name;
  int rank;

  void make(const std::function<void(Collectives&)>& call) const {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    identity.explain([&] {
      engine.in_turn([&](shm::SharedGroup& group) {
        const TimeoutForNow for_now(group, timeout, options);
        MemoryCollectives collectives(group, table);
        const auto made = [&] { ended_if_bad(group, [&] { call(collectives); }); };
        translated(rank, made, name);
      });
    });
  }
};

// The tensors of a call are on one device, or the ranks are told.
bool is_on_gpu(const Tensors& inputs, const Tensors& outputs) {
  const Tensors& any = inputs.empty() ? outputs : inputs;
  return !any.empty() && any.front().defined() && any.front().is_cuda();
}

c10::intrusive_ptr<Options> options_like(const c10::intrusive_ptr<c10d::Backend::Options>& given,
                                         std::chrono::milliseconds timeout) {
  auto options = c10::make_intrusive<Options>(given ? given->timeout : timeout);
  if (given) {
    options->group_name = given->group_name;
    options->group_desc = given->group_desc;
    options->global_ranks_in_group = given->global_ranks_in_group;
  }
  return options;
}

}  // namespace

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                 c10::intrusive_ptr<Options> options, std::shared_ptr<ShmEngine> engine)
    : CallsBackend(rank, size, std::move(options)),
      store_(std::move(store)),
      engine_(std::move(engine)),
      table_(std::make_shared<Table>(size)),
      gpu_table_(size, c10::DeviceType::CUDA) {
  TORCH_CHECK_VALUE(size <= kMostRanks, "shardway: ", size, " ranks are more than the ", kMostRanks,
                    " that a group can have");
  if (!engine_) {
    identity_->explain([&] {
      engine_ = std::make_shared<ShmEngine>(meet_on_one_host(*store_, rank, size, options_->timeout));
    });
  }
  init();
}

Backend::~Backend() = default;

std::shared_ptr<ShmEngine> Backend::shm_engine() {
  if (!home_.is_this()) return nullptr;  // a thread of the parent may have held the lock when it forked
  const std::lock_guard lock(mutex_);
  return engine_;
}

std::shared_ptr<ShmEngine> Backend::engine(const char* name) {
  home_.check();
  auto engine = shm_engine();
  identity_->explain([&] {
    TORCH_CHECK_WITH(DistBackendError, engine != nullptr, name, ": the group was destroyed (rank ", rank_,
                     ")");
  });
  return engine;
}

// A posted call holds what it needs, because the thread may run it after the backend is gone.
WorkPtr Backend::launch(const CallOptions& options, const Tensors& inputs, const Tensors& outputs,
                        std::function<void(Collectives&)> call) {
  const auto used = engine(options.name());
  const uint64_t number = ++sequence_number_;
  const ParamComms comms([&] {
    CommsFacts facts = facts_of(*this, options.name(), inputs, outputs);
    facts.input_splits = options.input_splits;
    facts.output_splits = options.output_splits;
    facts.is_async = options.is_async;
    return facts;
  });
  auto work =
      c10::make_intrusive<CallWork>(rank_, options.type, options.title, identity_, inputs, outputs, number);
  if (is_on_gpu(inputs, outputs)) {
    run_on_gpu(options, used, call);
    work->complete_at_once();
    return kept(work);
  }
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
  const OnCpu on_cpu{.engine = *used,
                     .table = *table_,
                     .options = *options_,
                     .identity = *identity_,
                     .timeout = timeout,
                     .name = options.words(),
                     .rank = rank_};
  // A call made by a callback of a future runs at once, because the callback may wait for it. On every rank
  // it runs between the same two calls.
  const bool is_now = used->is_own_thread() || (!options.is_async && !is_coalescing_);
  if (is_now) {
    on_cpu.make(call);
    work->complete_at_once();
    return work;
  }
  auto run = [on_cpu, call = std::move(call), held = std::make_tuple(used, table_, options_, identity_)] {
    on_cpu.make(call);
  };
  run_or_post(work, /*is_now=*/false, std::move(run), [&](auto later) { used->post(std::move(later)); });
  return kept(work);
}

// The hosts meet here; what the device does is queued on the current stream.
void Backend::run_on_gpu(const CallOptions& options, const std::shared_ptr<ShmEngine>& used,
                         const std::function<void(Collectives&)>& call) {
  {
    const std::lock_guard lock(mutex_);
    if (!on_gpu_) on_gpu_ = ipc_transport_of(used);
  }
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  identity_->explain([&] {
    DeviceCollectives collectives(*on_gpu_, *used, gpu_table_);
    translated(
        rank_, [&] { call(collectives); }, options.words());
  });
}

WorkPtr Backend::kept(WorkPtr work) {
  if (is_coalescing_) coalesced_.push_back(work);
  return work;
}

void Backend::startCoalescing() {
  is_coalescing_ = true;
  coalesced_.clear();
}

WorkPtr Backend::endCoalescing() {
  is_coalescing_ = false;
  return c10::make_intrusive<ManyWorks>(std::exchange(coalesced_, {}));
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found == ranks.end()) return nullptr;
  return c10::make_intrusive<Backend>(store, static_cast<int>(found - ranks.begin()),
                                      static_cast<int>(ranks.size()), options_like(opts, options_->timeout));
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const c10::intrusive_ptr<c10d::Backend::Options>& opts,
                                                 const int& rank, const int& size) {
  return c10::make_intrusive<Backend>(store, rank, size, options_like(opts, options_->timeout));
}

c10::intrusive_ptr<c10d::Backend> Backend::shrink(
    const std::vector<int64_t>& ranks_to_exclude, int /*shrink_flags*/,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts_override) {
  std::vector<int> left;
  for (int rank = 0; rank < size_; ++rank) {
    const auto excluded = std::find(ranks_to_exclude.begin(), ranks_to_exclude.end(), rank);
    if (excluded == ranks_to_exclude.end()) left.push_back(rank);
  }
  const auto store = c10::make_intrusive<c10d::PrefixStore>("shrink/" + std::to_string(shrinks_++), store_);
  auto smaller = split(store, left, opts_override);
  TORCH_CHECK_VALUE(smaller, "shrink: rank ", rank_, " is one of those to exclude");
  return smaller;
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  if (const auto used = shm_engine()) used->group().set_timeout(timeout);
}

c10d::ErrorType Backend::getError() {
  const auto used = shm_engine();
  const bool is_fine = used != nullptr && !used->group().is_lost();
  return is_fine ? c10d::ErrorType::SUCCESS : c10d::ErrorType::COMM_ERROR;
}

void Backend::abort() {
  if (const auto used = shm_engine()) used->group().abort();
}

// Posted calls run first.
void Backend::shutdown() {
  const auto used = shm_engine();
  if (!used) return;
  if (!used->group().is_lost()) used->in_turn([](shm::SharedGroup& group) { group.leave(); });
  const std::lock_guard lock(mutex_);
  on_gpu_.reset();
  engine_.reset();
}

bool Backend::supportsTensorAlloc(c10::DeviceIndex /*device*/) { return true; }

// NOLINTNEXTLINE(google-runtime-int): c10d's signature
at::Tensor Backend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK_VALUE(options.device().is_cpu(), "allocateTensor: the group has no memory on ",
                    options.device());
  return empty({size}, c10::typeMetaToScalarType(options.dtype()));
}

}  // namespace shardway::backend
