#include "shardway/redistribute.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/numbering.h"
#include "ops/call/recording.h"
#include "ops/call/start.h"
#include "ops/mesh/redistribution.h"
#include "ops/mesh/survivors.h"
#include "ops/mesh/told_layouts.h"
#include "transport/common/transport.h"

namespace shardway {
namespace {

Call call_of(const MeshTensor& tensor, const Layout& to, const Request& request) {
  const Layout& from = tensor.layout();
  return {
      .collective = Collective::redistribute,
      .x = tensor.local(),
      .wanted = request.prepared->wanted,
      .hash = CallHash{from.hash() * 31 + to.hash(), request.prepared->hash * 31 + request.gradient->hash()}};
}

// What a rank knows about the others before the first step.
struct KnownOfAll {
  bool any_requires_grad = false;
  KnownInputs inputs = {};
  c10::DeviceType device = c10::DeviceType::CPU;  // of the ranks that have a tensor
  uint64_t number = 0;                            // of the call
};

// Whether every rank has all it needs, as far as this rank understands the call. If a rank is outside the
// mesh this is false: it must hear whether there is a gradient, which may need it.
bool is_local(const MeshTensor& tensor, const Request& request) {
  const Group& group = tensor.group();
  if (!request.prepared) return is_everywhere(tensor.layout(), group);
  return !communicates(*request.prepared) && tensor.layout().mesh().size() == group.size();
}

KnownOfAll known_by(const Agreement& agreement) {
  return {.any_requires_grad = agreement.any_requires_grad(),
          .device = agreement.device().value_or(c10::DeviceType::CPU),
          .number = agreement.number()};
}

// Compares with the other ranks. Collective. If there is nothing to communicate or nothing to hear, the
// comparison is left out, unless it costs next to nothing or is asked for. Throws c10::ValueError for this
// rank's problem and, if the ranks compare, for that of any rank.
KnownOfAll settle(const Call& call, const Request& request, const MeshTensor& tensor) {
  const Group& group = tensor.group();
  const auto checks = [&] { return checks_every_call(tensor.local(), group); };
  if ((is_local(tensor, request) || knows_all(tensor)) && !named("redistribute", checks)) {
    if (!call.problem.empty()) raise("redistribute", call.problem, tensor.rank());
    return {.any_requires_grad = call.requires_grad()};
  }
  const Agreement agreement = agree(call, group);
  KnownOfAll known = known_by(agreement);
  known.inputs = agreement.known_inputs();
  return known;
}

// One call: prepare() before the ranks agree, if they move in the meeting; then agree(), then finish().
class Redistribution {
 public:
  Redistribution(const MeshTensor& tensor, const Request& request, const RedistributeOptions& options)
      : tensor_(tensor), request_(request), options_(options) {}

  // Returns the first moves before any other rank is heard; null if there are none.
  const RouteCall* prepare() {
    if (request_.keeps_layout) return nullptr;
    begin(c10::DeviceType::CPU);
    first_ = next_kept_leg(*walker_);
    return first_ ? &*first_ : nullptr;
  }

  // Returns the moves of prepare(), unless the tensors are on a device.
  std::optional<RouteCall> agree(KnownOfAll known) {
    known_ = std::move(known);
    if (request_.keeps_layout) return std::nullopt;
    if (known_.any_requires_grad) adjoint_ = adjoint_of(tensor_, request_, options_, known_.number);
    if (known_.device == c10::DeviceType::CPU) return first_;
    if (capture_ != nullptr) capture_->clear();
    first_.reset();
    walker_.reset();
    return std::nullopt;
  }

  // Does all that is left to do.
  MeshTensor finish() {
    if (request_.keeps_layout && capture_ == nullptr) return tensor_;
    const PreparedPlan& prepared = *request_.prepared;
    at::Tensor out = [&] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      if (!walker_) begin(known_.device);
      return numbered(tensor_.group(), [&] { return named("redistribute", [&] { return walked(); }); });
    }();
    if (prepared.stages.empty()) out = out.clone();
    if (capture_ != nullptr) {
      capture_->set_call(Collective::redistribute, known_.number, tensor_.group());
      if (prepared.stages.empty()) capture_->add_copy(input_, out);
    }
    if (adjoint_) out = with_adjoint(x_, out, adjoint_);
    return result_of(tensor_, prepared, out);
  }

 private:
  void begin(c10::DeviceType device) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    x_ = input_of(tensor_, *request_.prepared, device);
    const at::Tensor read = materialized(x_);
    walker_.emplace(*request_.prepared, read);
    if (capture_ != nullptr) input_ = keep_input(tensor_, request_.prepared->plan->to, x_, read, *capture_);
  }

  at::Tensor walked() {
    const Subject subject = moves_of("redistribute", known_.number);
    return walk(*walker_, known_.inputs, tensor_.group(), subject);
  }

  const MeshTensor& tensor_;
  const Request& request_;
  const RedistributeOptions& options_;
  at::Tensor x_;
  std::optional<Walker> walker_;
  std::optional<RouteCall> first_;
  KnownOfAll known_;
  std::shared_ptr<const Adjoint> adjoint_;
  Capture* capture_ = Capture::current();  // of the thread that calls, which may not be the one that meets
  size_t input_ = 0;                       // in the capture
};

MeshTensor run_on_living(const MeshTensor& tensor, const std::function<Layout()>& target,
                         const RedistributeOptions& options) {
  const auto targets = [&] {
    if (options.plan || options.grad_placements)
      throw BadArgument("plan and grad_placements are for a tensor whose ranks all live");
    if (options.relabel) throw BadArgument(kRelabelNeedsAllRanks);
    return std::vector<Layout>{target()};
  };
  const RedistributeListOptions given{
      .topology = options.topology, .max_bytes = options.max_bytes, .group = options.group};
  return redistribute_to_living({.tensors = {tensor}, .copies = {options.copies}}, targets, given).front();
}

MeshTensor run_once(const MeshTensor& tensor, const std::function<Layout()>& target,
                    const RedistributeOptions& options) {
  std::optional<Layout> to;
  Request request;
  const std::string problem = problem_in([&] {
    to = target();
    if (!options.copies.empty()) throw BadArgument(kCopiesNeedAGroup);
    check_local(tensor);
    if (options.relabel) to = relabelled_target(tensor, *to, options);
    read_request(tensor, *to, options, request);
  });
  const Group& group = tensor.group();
  if (!group.distributed()) {
    if (!problem.empty()) raise("redistribute", problem, tensor.rank());
    return {tensor.local(), tensor.anchor(), std::make_shared<const Layout>(*to), tensor.place()};
  }
  Call call{.collective = Collective::redistribute, .problem = problem};
  if (problem.empty()) call = call_of(tensor, *to, request);
  call.words = [&] { return words_of(tensor.layout(), *to, request, *tensor.place()); };
  Redistribution moves(tensor, request, options);
  const bool has_legs = problem.empty() && communicates(*request.prepared);
  if (has_legs && named("redistribute", [&] { return group.transport().moves_in_meeting(tensor.local()); })) {
    call.leg = moves.prepare();
    agree_and_move(call, group, [&](const Agreement& agreement) { return moves.agree(known_by(agreement)); });
  } else {
    moves.agree(settle(call, request, tensor));
  }
  return moves.finish();
}

MeshTensor run(const MeshTensor& tensor, const std::function<Layout()>& target,
               const RedistributeOptions& options) {
  if (options.group) return run_on_living(tensor, target, options);
  const Recording recording("redistribute", tensor.local());
  const auto known = [&] {
    return KnownLayouts{.form = KnownLayouts::Form::one, .layouts = {tensor.layout()}};
  };
  return telling(known, tensor.group(), [&] { return run_once(tensor, target, options); });
}

// Whether the call has to be posted to run asynchronously. Work on a device does so anyway, on the caller's
// stream.
bool is_on_cpu(const MeshTensor& tensor, const Group& group) {
  if (tensor.local().defined()) return tensor.local().is_cpu();
  return group.transport().refuses(c10::Device(c10::kCUDA, 0)).has_value();
}

Async<MeshTensor> run_async(const MeshTensor& tensor, std::function<Layout()> target,
                            const RedistributeOptions& options) {
  const Group group = options.group.value_or(tensor.group());
  const bool posts = group.distributed() && is_on_cpu(tensor, group);
  if (!posts) return Async<MeshTensor>(run(tensor, target, options));
  return post_call<MeshTensor>(
      group, [tensor, options, target = std::move(target)] { return run(tensor, target, options); });
}

std::function<Layout()> target_of(const MeshTensor& tensor, const std::vector<Placement>& placements,
                                  const RedistributeOptions& options) {
  return [=, from = tensor.layout(), mesh = options.mesh, order = options.order, group = options.group] {
    return from.with(mesh ? *mesh : mesh_of_living(from.mesh(), group), placements, order);
  };
}

}  // namespace

MeshTensor redistribute(const MeshTensor& tensor, const std::vector<Placement>& placements,
                        const RedistributeOptions& options) {
  return run(tensor, target_of(tensor, placements, options), options);
}

MeshTensor redistribute(const MeshTensor& tensor, const Layout& to, const RedistributeOptions& options) {
  return run(
      tensor, [&] { return to; }, options);
}

Async<MeshTensor> redistribute_async(const MeshTensor& tensor, const std::vector<Placement>& placements,
                                     const RedistributeOptions& options) {
  return run_async(tensor, target_of(tensor, placements, options), options);
}

Async<MeshTensor> redistribute_async(const MeshTensor& tensor, const Layout& to,
                                     const RedistributeOptions& options) {
  return run_async(
      tensor, [to] { return to; }, options);
}

}  // namespace shardway
