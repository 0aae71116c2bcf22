#include "link/moves/joint_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "hosts_backend/hosts_backend.h"
#include "link/moves/hub_store.h"
#include "ops/call/dtypes.h"

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

std::vector<ModelMove> moves_in_portion(const Roster& roster, int64_t portion) {
  std::vector<ModelMove> found;
  for (const ModelMove& move : roster.moves) {
    if (move.portion == portion) found.push_back(move);
  }
  return found;
}

// The numbers of portions start anew with each role, and those of equal number come together.
int64_t portions_in(const Roster& roster) {
  int64_t most = 0;
  for (const ModelMove& move : roster.moves) most = std::max(most, move.portion);
  return most;
}

// Whether the bytes that move are those of the destination.
bool can_land(const at::Tensor& out, const ModelMove& move) {
  return out.scalar_type() == scalar_type_of(move.after.dtype()) && !out.is_conj() && !out.is_neg();
}

std::string role_text(const RosterRole& role) {
  const int64_t last = role.first_rank + role.size - 1;
  const std::string numbers = role.size == 1
                                  ? " " + std::to_string(last)
                                  : "s " + std::to_string(role.first_rank) + "-" + std::to_string(last);
  return "rank" + numbers + ": role " + role.name;
}

std::string without_first_line(const std::string& text) { return text.substr(text.find('\n') + 1); }

}  // namespace

JointGroup::JointGroup(std::string generation, const Roster& roster, const Claim& claim,
                       const std::shared_ptr<HubConnection>& meeting, std::chrono::milliseconds timeout)
    : generation_(std::move(generation)),
      roles_(roster.roles),
      backend_(),
      group_(Group::alone()),
      direct_({}, Group::alone(), 0, claim.role) {
  const int64_t rank = roster.rank_of(claim);
  auto [backend, group] = met(generation_, rank, roster.ranks, meeting, timeout);
  backend_ = backend;
  group_ = group;
  direct_ = PreparedMoves(moves_in_portion(roster, 0), group_, rank, claim.role);
  for (int64_t portion = 1; portion <= portions_in(roster); ++portion)
    portions_.emplace_back(moves_in_portion(roster, portion), group_, rank, claim.role);
}

JointGroup::~JointGroup() = default;

void JointGroup::move(const SharedTensors& parts, const TensorsByName& destinations) {
  if (!vote_) {
    if (!direct_.moves().empty()) prepare_moves(parts, destinations);
    vote_.emplace(group_);
    round();
  } else if (direct_.call()) {
    direct_.run(parts);
    round();
  }
  for (PreparedMoves& portion : portions_) {
    if (portion.call()) {
      portion.run(parts);
    } else {
      portion.prepare(parts, std::vector<at::Tensor>(portion.moves().size()));
    }
  }
}

bool JointGroup::try_version(int64_t version, const SharedTensors& parts, bool is_willing,
                             const std::function<void(int64_t)>& on_begin) {
  if (!vote_->all_say(is_willing ? version : 0)) {
    is_quick_ = false;
    return false;
  }
  on_begin(version);
  if (direct_.call()) direct_.run(parts);
  round();
  vote_->all_say(version);
  return true;
}

void JointGroup::prepare_moves(const SharedTensors& parts, const TensorsByName& destinations) {
  const std::vector<ModelMove>& moves = direct_.moves();
  std::vector<at::Tensor> outs(moves.size());
  for (size_t i = 0; i < moves.size(); ++i) {
    if (!direct_.is_here(i)) continue;
    const at::Tensor& wanted = destinations.at(moves[i].name);
    if (can_land(wanted, moves[i])) outs[i] = wanted;
  }
  const std::vector<at::Tensor> arrived = direct_.prepare(parts, outs);
  for (size_t i = 0; i < moves.size(); ++i) {
    if (direct_.is_here(i) && !outs[i].defined())
      roundings_.push_back({.destination = destinations.at(moves[i].name), .arrived = arrived[i]});
  }
}

void JointGroup::round() {
  const at::NoGradGuard no_grad;
  for (const Rounding& rounding : roundings_) rounding.destination.copy_(rounding.arrived);
}

std::string JointGroup::explain() const {
  size_t tensors = direct_.moves().size();
  for (const PreparedMoves& portion : portions_) tensors += portion.moves().size();
  std::string text = "one version: " + std::to_string(tensors) + (tensors == 1 ? " tensor\n" : " tensors\n");
  for (const RosterRole& role : roles_) text += role_text(role) + "\n";
  if (direct_.call()) text += without_first_line(direct_.call()->explain()) + "\n";
  for (const PreparedMoves& portion : portions_) {
    if (portion.call()) text += without_first_line(portion.call()->explain()) + "\n";
  }
  int64_t staging = 0;
  for (const Rounding& rounding : roundings_) staging += static_cast<int64_t>(rounding.arrived.nbytes());
  return text + "memory here: " + std::to_string(staging) + " B for other dtypes";
}

void JointGroup::leave() { backend_->abort(); }

}  // namespace shardway::link
