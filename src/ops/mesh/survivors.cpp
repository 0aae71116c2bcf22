#include "ops/mesh/survivors.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

#include "ops/call/arguments.h"
#include "ops/call/dtypes.h"
#include "ops/call/header.h"
#include "ops/call/numbering.h"
#include "ops/call/recording.h"
#include "ops/mesh/listed_facts.h"
#include "ops/mesh/redistribution.h"
#include "ops/mesh/told_layouts.h"
#include "plan/geometry/salvage.h"
#include "transport/memory/tensors.h"
#include "transport/memory/warm_memory.h"

namespace shardway {
namespace {

// One tensor and its copies, and the way from there to the target.
struct Rescue {
  std::vector<MeshTensor> sources = {};
  Layout to;
  Salvage salvage;
};
using Rescues = std::vector<Rescue>;

// This rank's part of the first source of which it has one. Undefined if it has none.
at::Tensor any_local(const std::vector<MeshTensor>& sources) {
  for (const MeshTensor& source : sources) {
    if (source.local().defined()) return source.local();
  }
  return {};
}

void check_source(const MeshTensor& source, const Layout& to, const MeshTensor::Place& living,
                  const at::Tensor& other) {
  if (source.rank() != living.number())
    throw BadArgument(c10::str("its group knows this rank as ", source.rank(),
                               ", the group of the living as ", living.number()));
  if (const auto why = why_not(source.layout(), to)) throw BadArgument(*why);
  check_local(source, living.group);
  const at::Tensor& local = source.local();
  if (!local.defined()) return;
  if (local.device() != other.device())
    throw BadArgument(c10::str("it is on ", local.device(), ", another copy on ", other.device()));
  const ExchangeRules rules = exchange_rules_between(source.layout(), to);
  if (!rules.resolved.empty()) check_reduction(local.detach(), rules.divisor == 1 ? rules.op : Op::avg);
}

std::vector<MeshTensor> sources_of(const HeldTensors& held, size_t i) {
  std::vector<MeshTensor> sources{held.tensors[i]};
  if (!held.copies.empty()) sources.insert(sources.end(), held.copies[i].begin(), held.copies[i].end());
  return sources;
}

Rescue rescue_of(std::vector<MeshTensor> sources, const Layout& to, const MeshTensor::Place& living) {
  const at::Tensor local = any_local(sources);
  std::vector<Layout> layouts;
  for (size_t k = 0; k < sources.size(); ++k) {
    const std::string problem = problem_in([&] { check_source(sources[k], to, living, local); });
    if (!problem.empty()) throw BadArgument(k == 0 ? problem : c10::str("copy ", k - 1, ": ", problem));
    layouts.push_back(sources[k].layout());
  }
  Salvage salvage(std::move(layouts), to, living.ranks);
  return {.sources = std::move(sources), .to = to, .salvage = std::move(salvage)};
}

Rescues read_rescues(const HeldTensors& held, const std::vector<Layout>& to,
                     const RedistributeListOptions& options, const MeshTensor::Place& living) {
  if (options.topology || options.max_bytes)
    throw BadArgument("topology and max_bytes are for a tensor whose ranks all live");
  if (held.tensors.empty()) throw BadArgument("the list of tensors is empty");
  if (to.size() != held.tensors.size())
    throw BadArgument(c10::str("there are ", to.size(), " targets for ", held.tensors.size(), " tensors"));
  if (!held.copies.empty() && held.copies.size() != held.tensors.size())
    throw BadArgument(
        c10::str("there are copies for ", held.copies.size(), " tensors, but t has ", held.tensors.size()));
  Rescues rescues;
  for (size_t i = 0; i < to.size(); ++i) {
    const std::string problem =
        problem_in([&] { rescues.push_back(rescue_of(sources_of(held, i), to[i], living)); });
    if (problem.empty()) continue;
    throw BadArgument(to.size() == 1 ? problem : c10::str("tensor ", i, ": ", problem));
  }
  return rescues;
}

std::string words_of(const Rescues& rescues, const MeshTensor::Place& living) {
  std::string words = c10::str("the number of tensors: ", rescues.size(),
                               "\nthe living ranks: ", at::IntArrayRef(living.ranks.numbers()));
  for (size_t i = 0; i < rescues.size(); ++i) {
    const Rescue& rescue = rescues[i];
    words += c10::str("\ntensor ", i, ": ");
    for (size_t k = 0; k < rescue.sources.size(); ++k)
      words += (k == 0 ? "" : " and ") + described(rescue.sources[k].layout());
    words += " to " + described(rescue.to);
  }
  return words;
}

CallHash hash_of(const Rescues& rescues, const MeshTensor::Place& living) {
  CallHash hash{rescues.size(), shm::mark_of("living")};
  for (const int64_t number : living.ranks.numbers()) hash[1] = hash[1] * 31 + static_cast<uint64_t>(number);
  for (const Rescue& rescue : rescues) {
    for (const MeshTensor& source : rescue.sources) hash[0] = hash[0] * 31 + source.layout().hash();
    hash[0] = hash[0] * 1099511628211U + rescue.to.hash();
  }
  return hash;
}

// What all ranks said, once they agree.
struct Agreed {
  std::vector<ListedFacts> facts = {};
  uint64_t number = 0;  // of the call
};

Agreed agreed(const Call& call, const Group& group) {
  if (!group.distributed()) return {.facts = facts_in({call.x})};
  const auto ask = [&] { return agree(call, group); };
  // What the living hold is in several layouts, so a rank that asks gets no answer: all ranks throw.
  const Agreement agreement = telling([] { return KnownLayouts(); }, group, ask);
  return {.facts = facts_in(all_flags(call.x, agreement, group)), .number = agreement.number()};
}

// Throws the same c10::ValueError on every rank if a part of a tensor is lost.
void check_nothing_is_lost(const Rescues& rescues) {
  for (size_t i = 0; i < rescues.size(); ++i) {
    const std::vector<LostBox> lost = rescues[i].salvage.lost();
    if (lost.empty()) continue;
    const std::string which = rescues.size() == 1 ? "" : c10::str("tensor ", i, ": ");
    TORCH_CHECK_VALUE(false, "redistribute: ", which, to_string(lost, rescues[i].sources[0].layout()),
                      ", and no living rank holds a copy");
  }
}

// The moves of one tensor, from every source into one output. The routes outlive the moves.
class RescueMoves {
 public:
  RescueMoves(const Rescue& rescue, c10::DeviceType device, const Group& group)
      : rescue_(rescue), routes_(rescue.salvage.routes(group.rank())) {
    const auto options = at::dtype(scalar_type_of(rescue.to.dtype())).device(device);
    out_ = warm_empty(routes_[0].output_shape, options);
    for (size_t k = 0; k < routes_.size(); ++k) {
      const at::Tensor& local = rescue.sources[k].local();
      inputs_.push_back(local.defined() ? materialized(local.detach())
                                        : empty_tensor(routes_[k].input_shape, options));
    }
  }

  void add_to(std::vector<RouteCall>& calls, const Group& group) const {
    const bool is_packed = group.distributed() && out_.is_cpu() && is_small(rescue_.to, group.transport());
    for (size_t k = 0; k < routes_.size(); ++k)
      calls.push_back({.route = &routes_[k], .x = inputs_[k], .out = out_, .is_small = is_packed});
  }

  MeshTensor result(const std::shared_ptr<const MeshTensor::Place>& living) const {
    const bool is_inside = rescue_.to.mesh().position_of(living->number()).has_value();
    const at::Tensor local = is_inside ? out_ : at::Tensor();
    return {local, local, std::make_shared<const Layout>(rescue_.to), living};
  }

 private:
  const Rescue& rescue_;
  std::vector<Route> routes_;
  std::vector<at::Tensor> inputs_;
  at::Tensor out_;
};

std::vector<MeshTensor> moved(const Rescues& rescues, const Agreed& agreed,
                              const std::shared_ptr<const MeshTensor::Place>& living) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const Group group = living->group.distributed() ? living->group : Group::alone();
  std::vector<RescueMoves> moves;
  moves.reserve(rescues.size());
  std::vector<RouteCall> calls;
  for (size_t i = 0; i < rescues.size(); ++i) {
    moves.emplace_back(rescues[i], agreed.facts[i].device.value_or(c10::DeviceType::CPU), group);
    moves.back().add_to(calls, group);
  }
  group.transport().start_all(calls, moves_of("redistribute", agreed.number))->finish();
  std::vector<MeshTensor> results;
  for (const RescueMoves& move : moves) results.push_back(move.result(living));
  return results;
}

}  // namespace

std::vector<MeshTensor> redistribute_to_living(const HeldTensors& held,
                                               const std::function<std::vector<Layout>()>& targets,
                                               const RedistributeListOptions& options) {
  const auto living = std::make_shared<const MeshTensor::Place>(*options.group);
  std::vector<at::Tensor> locals;
  for (const MeshTensor& tensor : held.tensors) locals.push_back(tensor.local());
  const Recording recording("redistribute", locals);
  Rescues rescues;
  const std::string problem = problem_in([&] { rescues = read_rescues(held, targets(), options, *living); });
  Call call{.collective = Collective::redistribute, .problem = problem};
  if (problem.empty()) {
    for (size_t i = 0; i < rescues.size(); ++i) locals[i] = any_local(rescues[i].sources);
    call.x = flags_of(locals);
    call.wanted = Wanted::whole;
    call.hash = hash_of(rescues, *living);
    call.words = [&] { return words_of(rescues, *living); };
  } else if (!living->group.distributed()) {
    raise("redistribute", problem, living->number());
  }
  const Agreed said = agreed(call, living->group);
  check_nothing_is_lost(rescues);
  return numbered(living->group,
                  [&] { return named("redistribute", [&] { return moved(rescues, said, living); }); });
}

Mesh mesh_of_living(const Mesh& mesh, const std::optional<Group>& group) {
  if (!group) return mesh;
  const GroupRanks living(group->global_ranks());
  std::vector<int64_t> ranks;
  for (const int64_t rank : mesh.ranks()) {
    if (living.rank_of(rank)) ranks.push_back(rank);
  }
  const auto left = static_cast<int64_t>(ranks.size());
  if (left == mesh.size()) return mesh;
  if (mesh.ndim() != 1)
    throw BadArgument(c10::str("the mesh ", to_string(mesh), " has lost ", mesh.size() - left,
                               " ranks: say with mesh= how the others lie"));
  if (left == 0) throw BadArgument("no rank of the tensor's mesh is in the group");
  return {{left}, std::move(ranks), mesh.names()};
}

}  // namespace shardway
