#include "link/moves/joint_group.h"

#include <numeric>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "hosts_backend/hosts_backend.h"
#include "link/moves/hub_store.h"

namespace shardway::link {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

std::vector<int64_t> numbers_below(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// gloo cannot be made from C++: torch's package lacks its headers.
BackendPtr no_engine_between_hosts(const std::string&) {
  C10_THROW_ERROR(DistBackendError,
                  "the ranks of this link are on several hosts, but one of its jobs is in C++, which "
                  "needs all of them on one host");
}

BackendPtr made_backend(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
                        const std::string& name, std::chrono::milliseconds timeout) {
  const auto options = c10::make_intrusive<backend::Options>(timeout);
  options->group_name = name;
  for (const int64_t number : numbers_below(size))
    options->global_ranks_in_group.push_back(static_cast<uint64_t>(number));
  return backend::make_backend(store, static_cast<int>(rank), static_cast<int>(size), options,
                               &no_engine_between_hosts);
}

// Known to shardway alone: other groups that the process has do not matter.
Group made_group(const c10::intrusive_ptr<c10d::Store>& store, const BackendPtr& backend,
                 const std::string& name) {
  constexpr auto kKind = c10d::ProcessGroup::BackendType::CUSTOM;
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, backend->getRank(), backend->getSize());
  group->setDefaultBackend(kKind);
  group->setBackend(c10::DeviceType::CPU, kKind, backend);
  group->setGroupName(name);
  group->setGroupDesc("link");
  return {group, numbers_below(backend->getSize())};
}

struct MetGroup {
  BackendPtr backend;
  Group group;
};

MetGroup met(const std::string& generation, int64_t rank, int64_t size,
             const std::shared_ptr<HubConnection>& meeting, std::chrono::milliseconds timeout) {
  const std::string name = "link_" + generation;
  const auto store = c10::make_intrusive<HubStore>(meeting, timeout);
  const BackendPtr backend = made_backend(store, rank, size, name, timeout);
  Group group = made_group(store, backend, name);
  store->close();
  return {backend, std::move(group)};
}

}  // namespace

JointGroup::JointGroup(std::string generation, const Roster& roster, const Claim& claim,
                       const std::shared_ptr<HubConnection>& meeting, std::chrono::milliseconds timeout)
    : generation_(std::move(generation)) {
  const int64_t rank = roster.rank_of(claim);
  for (const ModelMove& move : roster.moves) {
    if (move.is_on_gpus)
      throw NotOurs("a roster in which " + move.name + " moves on a GPU: a job in C++ cannot take part");
  }
  auto [backend, group] = met(generation_, rank, roster.ranks, meeting, timeout);
  backend_ = backend;
  group_ = group;
  moves_.emplace(roster, group_, rank, claim.role);
}

JointGroup::~JointGroup() = default;

void JointGroup::move(const SharedTensors& parts, const TensorsByName& destinations, Loader& loader,
                      int64_t sets) {
  if (!vote_) {
    moves_->prepare(parts, destinations, false);
    vote_.emplace(group_);
  } else {
    moves_->run(parts, sets);
  }
  moves_->round();
  moves_->bring_portions(parts, loader, sets);
}

bool JointGroup::try_version(int64_t version, const SharedTensors& parts, int64_t sets, bool is_willing,
                             const std::function<void(int64_t)>& on_begin) {
  if (!vote_->all_say(is_willing ? version : 0)) {
    is_quick_ = false;
    return false;
  }
  on_begin(version);
  moves_->run(parts, sets);
  moves_->round();
  vote_->all_say(version);
  return true;
}

void JointGroup::leave() { backend_->abort(); }

}  // namespace shardway::link
