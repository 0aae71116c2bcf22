#include "transport/group/process_group.h"

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "cuda/driver.h"
#include "plan/hosts/host_map.h"
#include "shm/board/interrupt.h"
#include "shm/group/hosts.h"
#include "transport/c10d/c10d.h"
#include "transport/c10d/virtual_group.h"
#include "transport/common/exchange.h"
#include "transport/common/giving_up.h"
#include "transport/common/home_process.h"
#include "transport/common/knows_hosts.h"
#include "transport/common/param_comms.h"
#include "transport/common/repeated_moves.h"
#include "transport/group/engine_calls.h"
#include "transport/group/hosts_transport.h"
#include "transport/group/known_groups.h"
#include "transport/ipc/ipc.h"
#include "transport/shm/list_call.h"
#include "transport/shm/shm.h"
#include "transport/shm/shm_engine.h"
#include "transport/shm/shm_errors.h"

namespace shardway {
namespace {

enum class WantedTransport : uint8_t { whatever_is_there, shm, c10d, ipc };

WantedTransport wanted_transport() {
  const char* value = std::getenv("SHARDWAY_TRANSPORT");
  if (value == nullptr || *value == '\0') return WantedTransport::whatever_is_there;
  const std::string_view word(value);
  if (word == "shm") return WantedTransport::shm;
  if (word == "ipc") return WantedTransport::ipc;
  TORCH_CHECK_VALUE(word == "c10d", "SHARDWAY_TRANSPORT=", word, " is not one of shm, ipc and c10d");
  return WantedTransport::c10d;
}

// Both need memory that all ranks share.
bool is_in_memory(WantedTransport wanted) {
  return wanted == WantedTransport::shm || wanted == WantedTransport::ipc;
}

const char* name_of(WantedTransport wanted) { return wanted == WantedTransport::ipc ? "ipc" : "shm"; }

// Null if the backend does not give its options.
c10::intrusive_ptr<c10d::Backend::Options> options_of(c10d::ProcessGroup& group) {
  const auto backend = backend_of(group);
  try {
    return backend ? backend->getBackendOptions() : nullptr;
  } catch (const std::exception&) {
    return nullptr;
  }
}

std::chrono::milliseconds timeout_of(c10d::ProcessGroup& group) {
  const auto options = options_of(group);
  return options ? options->timeout : kBackendDefaultTimeout;
}

// Empty for the default group, and if the backend does not give its options.
std::vector<int64_t> global_ranks_of(c10d::ProcessGroup& group) {
  const auto options = options_of(group);
  if (!options) return {};
  return {options->global_ranks_in_group.begin(), options->global_ranks_in_group.end()};
}

// Whether this is torch's backend for dry runs. It reports exchanges that it did not make, so its results
// come from no rank.
bool is_fake(c10d::ProcessGroup& group) {
  const auto backend = backend_of(group);
  return backend != nullptr && backend->getBackendName() == "fake";
}

// In a dry run every rank says what this one says.
Blocks repeated(const at::Tensor& block, int64_t ranks, int64_t row_bytes) {
  at::Tensor rows = at::zeros({ranks, row_bytes}, block.options());
  rows.narrow(1, 0, block.numel()).copy_(block);
  return {.rows = std::move(rows),
          .bytes = c10::SmallVector<int64_t, 8>(static_cast<size_t>(ranks), block.numel())};
}

// The engine of the group's backend for CPU or CUDA tensors; null if it has none. That is also so under
// TORCH_DISTRIBUTED_DEBUG=DETAIL, where torch wraps the backend.
std::shared_ptr<ShmEngine> own_engine(c10d::ProcessGroup& group) {
  for (const auto device : {c10::DeviceType::CPU, c10::DeviceType::CUDA}) {
    auto* shares = dynamic_cast<SharesMemory*>(backend_of(group, device).get());
    if (shares != nullptr) return shares->shm_engine();
  }
  return nullptr;
}

using Bytes = std::vector<std::byte>;

// Returns every rank's block, exchanged by the group's own engine. Its waits cannot be interrupted, so a
// separate thread waits, for as long as it takes, and the caller's wait for that thread can be interrupted.
Bytes exchanged_aside(const std::shared_ptr<Transport>& engine, std::span<const std::byte> mine,
                      KnownGroup& known) {
  std::packaged_task<Bytes()> task(
      [engine, block = Bytes(mine.begin(), mine.end()), state = at::ThreadLocalState()] {
        const at::ThreadLocalStateGuard guard(state);
        return exchanged(*engine, block);
      });
  std::future<Bytes> result = task.get_future();
  try {
    std::thread(std::move(task)).detach();
  } catch (const std::system_error&) {  // no thread could be started
    return exchanged(*engine, mine);
  }
  while (result.wait_for(shm::kInterruptEvery) != std::future_status::ready) {
    try {
      shm::check_interrupt();
    } catch (...) {
      known.has_failed = true;
      known.room.lifelines->tell_interrupt();
      throw;
    }
  }
  return result.get();
}

bool are_on_cpu(const std::vector<RouteCall>& calls) {
  return std::all_of(calls.begin(), calls.end(), [](const RouteCall& call) { return call.x.is_cpu(); });
}

// Several threads may use one: those that call, and that of the calls that are posted.
class ProcessGroupTransport : public Transport,
                              public SharesMemory,
                              public RepeatsMoves,
                              public KnowsHosts,
                              public GivesUp {
 public:
  explicit ProcessGroupTransport(c10::intrusive_ptr<c10d::ProcessGroup> group)
      : group_(std::move(group)),
        rank_(group_->getRank()),
        size_(group_->getSize()),
        options_(options_of(*group_)),
        known_(KnownGroups::instance().of(group_)) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }

  std::vector<int64_t> global_ranks() override { return global_ranks_of(*group_); }
  std::chrono::milliseconds timeout() override { return timeout_of(*group_); }
  // Ranks that all share memory tell one another by their boards.
  void give_up(const std::string& why) override {
    if (known_->give_up) return known_->give_up(why);
    if (found_better() == nullptr) known_->room.lifelines->tell_failure(why);
  }
  std::shared_ptr<ShmEngine> shm_engine() override {
    known_->home.check();
    if (auto engine = own_engine(*group_)) return engine;
    const std::lock_guard lock(known_->mutex);
    return known_->better ? shm_engine_of(*known_->better) : nullptr;
  }
  KeptCalls* kept_calls() override {
    KeptCalls* const kept = kept_calls_.load(std::memory_order_acquire);  // pairs with better()
    if (kept != nullptr) follow_timeout();
    return kept;
  }
  GroupLabel label() const { return {.name = group_->getGroupName(), .description = group_->getGroupDesc()}; }

  std::optional<std::string> refuses(c10::Device device) override {
    if (device.is_cpu() && found_better() != nullptr) return std::nullopt;
    if (moves_by_ipc(device)) return known_->ipc->refuses(device);
    auto why = c10d().refuses(device);
    return why && device.is_cpu() && better() != nullptr ? std::nullopt : why;
  }

  const HostMap* hosts_for(const at::Tensor& x) override {
    if (x.defined() ? !x.is_cpu() : moves_on_devices()) return nullptr;
    Transport* found = better();
    return found != nullptr ? shardway::hosts_for(*found, x) : nullptr;
  }

  int64_t slot_bytes() override { return of_cpu().slot_bytes(); }

  bool compares_every_call(const at::Tensor& x) override {
    return (is_for_engine(x) ? of_tensor(x) : of_cpu()).compares_every_call(x);
  }

  bool has_thread() override { return of_cpu().has_thread(); }

  std::unique_ptr<Posted> post(std::function<void()> call) override { return of_cpu().post(std::move(call)); }

  bool has_own(const Route& route, const at::Tensor& x) override { return of_tensor(x).has_own(route, x); }

  bool combines_whole(const at::Tensor& x) override {
    return (x.defined() ? of_tensor(x) : of_cpu()).combines_whole(x);
  }

  bool moves_in_meeting(const at::Tensor& x) override {
    const bool is_engines = x.defined() && is_for_engine(x);
    return !is_engines && of_cpu().moves_in_meeting(x);
  }

  void meet(const Opening& opening, const Subject& subject, const Decide& decide) override {
    of_cpu().meet(opening, subject, decide);
  }

  Blocks all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject) override {
    Transport& used = of_cpu();
    if (&used != made_c10d()) return used.all_gather_block(mine, row_bytes, subject);
    if (is_fake(*group_)) return repeated(mine, size_, row_bytes);
    Blocks blocks;
    known_->queue->in_turn([&] {
      calls().run(subject.name, static_cast<int64_t>(mine.nbytes()),
                  [&] { blocks = used.all_gather_block(mine, row_bytes, subject); });
    });
    return blocks;
  }

  std::unique_ptr<Transfer> start(const Route& route, const at::Tensor& x, const at::Tensor& out,
                                  const KnownInputs& known, const Subject& subject) override {
    Transport& used = of_tensor(x);
    if (&used != made_c10d() || is_fake(*group_)) return used.start(route, x, out, known, subject);
    std::unique_ptr<Transfer> transfer;
    const auto start_here = [&] {
      transfer = calls().start(subject.name, static_cast<int64_t>(x.numel() > 0 ? x.nbytes() : out.nbytes()),
                               [&] { return used.start(route, x, out, known, subject); });
    };
    // The order of the numbers is that of the turns. Work on a device is the caller's thread's own.
    x.is_cpu() ? known_->queue->in_turn(start_here) : start_here();
    return transfer;
  }

  std::unique_ptr<Transfer> start_all(const std::vector<RouteCall>& calls, const Subject& subject) override {
    if (are_on_cpu(calls) && better() != nullptr) return better()->start_all(calls, subject);
    if (!calls.empty() && moves_by_ipc(calls[0].x.device())) return known_->ipc->start_all(calls, subject);
    return start_each(std::make_unique<ListCall>(calls, *this), *this, subject);
  }

  std::unique_ptr<RepeatedMoves> repeat(std::vector<RouteCall> calls) override {
    if (are_on_cpu(calls) && better() != nullptr) return repeated(*better(), std::move(calls));
    if (!calls.empty() && moves_by_ipc(calls[0].x.device())) return repeated(*known_->ipc, std::move(calls));
    return started_again(*this, std::move(calls));
  }

 private:
  Transport& c10d() {
    if (Transport* made = made_c10d()) return *made;
    known_->home.check();
    std::call_once(has_c10d_, [this] {
      c10d_ = is_virtual(*group_) ? make_virtual_transport(group_, known_->queue, known_->room.ledger)
                                  : make_c10d_transport(group_, known_->queue, known_->room);
      made_c10d_.store(c10d_.get(), std::memory_order_release);  // pairs with made_c10d()
    });
    return *c10d_;
  }

  // What c10d() returned before.
  Transport* made_c10d() const { return made_c10d_.load(std::memory_order_acquire); }

  EngineCalls& calls() {
    std::call_once(known_->has_calls, [this] {
      known_->calls = std::make_shared<EngineCalls>(*group_, global_ranks_of(*group_));
    });
    return *known_->calls;
  }

  // Returns null if no ranks share memory. The first call is collective.
  Transport* better() {
    if (Transport* found = found_better()) {
      follow_timeout();
      return found;
    }
    known_->home.check();
    const std::lock_guard lock(known_->mutex);
    if (!known_->is_decided) {
      TORCH_CHECK_WITH(DistBackendError, !known_->has_failed,
                       "the group's first call was interrupted or failed: make another group (rank ", rank_,
                       ")");
      known_->better = decide();
      known_->is_decided = true;
    }
    const bool has_memory = known_->better != nullptr && own_engine(*group_) == nullptr;
    const auto engine = has_memory ? shm_engine_of(*known_->better) : nullptr;
    memory_.store(engine ? &engine->group() : nullptr, std::memory_order_relaxed);
    kept_calls_.store(known_->better ? known_->better->kept_calls() : nullptr, std::memory_order_release);
    found_better_.store(known_->better.get(), std::memory_order_release);  // pairs with found_better()
    return known_->better.get();
  }

  // What better() returned before, read without a lock.
  Transport* found_better() const { return found_better_.load(std::memory_order_acquire); }

  // A user may change the timeout of a group. Memory that belongs to the backend itself hears of it there.
  void follow_timeout() {
    shm::SharedGroup* memory = memory_.load(std::memory_order_relaxed);  // found_better() has acquired it
    if (memory != nullptr && options_) memory->set_timeout(options_->timeout);
  }

  // Whether the c10d engine runs a call of such a tensor. For an undefined `x`: whether the group has no
  // engine for CPU tensors.
  bool is_for_engine(const at::Tensor& x) {
    if (!x.defined()) return c10d().refuses(c10::Device(c10::kCPU)).has_value();
    return !x.is_cpu() && !refuses(x.device());
  }

  // Whether tensors on this device move between ranks that share it, and not by the group's own engine: if
  // that was asked for, or if the group has no engine for them. The first call is collective, as that of
  // better().
  bool moves_by_ipc(c10::Device device) {
    if (!device.is_cuda()) return false;
    ByIpc by_ipc = by_ipc_;
    if (by_ipc == ByIpc::undecided) by_ipc_ = by_ipc = decide_ipc(device) ? ByIpc::yes : ByIpc::no;
    return by_ipc == ByIpc::yes;
  }
  enum class ByIpc : uint8_t { undecided, yes, no };
  bool decide_ipc(c10::Device device);

  bool moves_on_devices() {
    const auto bound = group_->getBoundDeviceId();
    return !c10d().refuses(bound && !bound->is_cpu() ? *bound : c10::Device(c10::kCUDA, 0));
  }

  Transport& of_tensor(const at::Tensor& x) {
    if (x.defined() && moves_by_ipc(x.device())) return *known_->ipc;
    return !x.defined() || x.is_cpu() ? of_cpu() : c10d();
  }

  Transport& of_cpu() {
    Transport* found = better();
    return found != nullptr ? *found : c10d();
  }

  std::shared_ptr<Transport> used(const HostsTransport& hosts) {
    known_->give_up = hosts.give_up;
    known_->gone = hosts.gone;
    return hosts.transport;
  }

  std::shared_ptr<Transport> decide();
  std::shared_ptr<Transport> join_memory(WantedTransport wanted);

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int64_t rank_;
  int64_t size_;
  c10::intrusive_ptr<c10d::Backend::Options> options_;  // null if the backend does not give them
  std::shared_ptr<KnownGroup> known_;
  std::atomic<shm::SharedGroup*> memory_ = nullptr;  // of found_better_, where the group's backend has none
  std::atomic<Transport*> found_better_ = nullptr;   // that of known_
  std::atomic<KeptCalls*> kept_calls_ = nullptr;     // of found_better_
  std::once_flag has_c10d_;
  std::shared_ptr<Transport> c10d_;
  std::atomic<Transport*> made_c10d_ = nullptr;  // c10d_, once it is there
  std::atomic<ByIpc> by_ipc_ = ByIpc::undecided;
};

std::shared_ptr<Transport> ProcessGroupTransport::decide() {
  const WantedTransport wanted = wanted_transport();
  if (size_ == 1 || wanted == WantedTransport::c10d || is_fake(*group_)) return nullptr;
  if (is_virtual(*group_)) {  // such a group may exist for its own methods
    TORCH_CHECK_VALUE(!is_in_memory(wanted), "SHARDWAY_TRANSPORT=", name_of(wanted),
                      ", but the process group (", group_->getBackendName(), ") has no engine of torch's");
    return nullptr;
  }
  if (auto engine = own_engine(*group_)) return make_shm_transport(std::move(engine));
  if (auto* hosts = dynamic_cast<SpansHosts*>(backend_of(*group_, c10::DeviceType::CPU).get())) {
    TORCH_CHECK_VALUE(!is_in_memory(wanted), "SHARDWAY_TRANSPORT=", name_of(wanted),
                      ", but the ranks are on several hosts");
    return used(hosts->hosts_transport());
  }
  const bool can_meet = !c10d().refuses(c10::Device(c10::kCPU));
  TORCH_CHECK_VALUE(wanted != WantedTransport::ipc || can_meet,
                    "SHARDWAY_TRANSPORT=ipc, but the process group (", group_->getBackendName(),
                    ") has no engine for CPU tensors, by which its ranks could meet: make it of "
                    "\"cpu:gloo,cuda:nccl\", \"gloo\" or \"shardway\"");
  std::shared_ptr<Transport> transport;
  const auto join = [&] {
    try {
      transport = join_memory(wanted);
    } catch (const c10::Error&) {  // thrown by the exchange: its engine tells the others
      throw;
    } catch (...) {
      known_->has_failed = true;
      throw;
    }
  };
  calls().join([&] { translated(rank_, join); });
  return transport;
}

bool ProcessGroupTransport::decide_ipc(c10::Device device) {
  const WantedTransport wanted = wanted_transport();
  const bool is_asked = wanted == WantedTransport::ipc;
  const bool is_ours =
      dynamic_cast<SharesMemory*>(backend_of(*group_, c10::DeviceType::CUDA).get()) != nullptr;
  const bool has_no_engine = is_ours || (!group_->getBoundDeviceId() && c10d().refuses(device).has_value());
  const bool may_need_it =
      wanted == WantedTransport::whatever_is_there && has_no_engine && cuda::Driver::why_none().empty();
  if (size_ == 1 || is_fake(*group_) || is_virtual(*group_) || (!is_asked && !may_need_it)) return false;
  Transport* found = better();
  const auto memory = found != nullptr ? shm_engine_of(*found) : nullptr;
  if (!memory) return false;
  const std::lock_guard lock(known_->mutex);
  if (!known_->ipc) known_->ipc = ipc_transport_of(memory);
  return true;
}

std::shared_ptr<Transport> ProcessGroupTransport::join_memory(WantedTransport wanted) {
  const auto exchange = [this](std::span<const std::byte> mine) {
    return exchanged_aside(c10d_, mine, *known_);
  };
  const std::chrono::milliseconds timeout = timeout_of(*group_);
  shm::JoinedGroup joined =
      shm::SharedGroup::join({.rank = rank_, .size = size_, .exchange = exchange, .timeout = timeout});
  if (joined.group) return make_shm_transport(std::move(joined.group));
  calls().know_hosts(std::move(joined.elsewhere));
  TORCH_CHECK_VALUE(!is_in_memory(wanted), "SHARDWAY_TRANSPORT=", name_of(wanted),
                    ", but the ranks share no memory: ", joined.why_not);
  if (!joined.spans_hosts || c10d_->refuses(c10::Device(c10::kCPU))) return nullptr;
  const shm::HostGroups groups =
      shm::join_hosts({.rank = rank_, .size = size_, .exchange = exchange, .timeout = timeout});
  if (HostMap(groups.labels).hosts() == size_) return nullptr;
  const auto between =
      make_mail_office(backend_of(*group_, c10::DeviceType::CPU), known_->room, hosts_in_words(groups));
  return used(make_hosts_transport(groups, between, known_->queue, timeout));
}

}  // namespace

void adopt(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::shared_ptr<ShmEngine> engine) {
  if (wanted_transport() == WantedTransport::c10d) return;
  const auto known = KnownGroups::instance().of(group);
  const std::lock_guard lock(known->mutex);
  known->better = make_shm_transport(std::move(engine));
  known->is_decided = true;
}

void leave_if_unowned(const c10::weak_intrusive_ptr<c10d::ProcessGroup>& group) {
  if (group.use_count() <= 1) KnownGroups::instance().forget(group);
}

void disown(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  KnownGroups::instance().of(group)->home.leave();
}

void give_up(Transport& transport, const std::string& why) {
  if (auto* tells = dynamic_cast<GivesUp*>(&transport)) tells->give_up(why);
}

GroupLabel label_of(const Transport& transport) {
  const auto* of_group = dynamic_cast<const ProcessGroupTransport*>(&transport);
  return of_group != nullptr ? of_group->label() : GroupLabel{};
}

std::shared_ptr<Transport> make_transport(c10::intrusive_ptr<c10d::ProcessGroup> group) {
  return std::make_shared<ProcessGroupTransport>(std::move(group));
}

}  // namespace shardway
