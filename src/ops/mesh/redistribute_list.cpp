// Many tensors at once: one comparison of what the ranks are about to do, and one exchange per step.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>

#include "ops/call/arguments.h"
#include "ops/call/dtypes.h"
#include "ops/call/header.h"
#include "ops/call/recording.h"
#include "ops/call/start.h"
#include "ops/mesh/listed_facts.h"
#include "ops/mesh/mesh_rows.h"
#include "ops/mesh/redistribution.h"
#include "ops/mesh/survivors.h"
#include "ops/mesh/told_layouts.h"
#include "transport/memory/tensors.h"

namespace shardway {
namespace {

using MeshTensors = std::vector<MeshTensor>;
using Layouts = std::vector<Layout>;

// A prepared call has outputs of its own, even where nothing changes.
bool returns_input(const Request& request, const at::Tensor& out) {
  return request.keeps_layout && Capture::current() == nullptr && !out.defined();
}

// The caller's tensor for a result; undefined if there is none.
at::Tensor out_of(const RedistributeListOptions& given, size_t i) {
  return given.outs.empty() ? at::Tensor() : given.outs[i];
}

using Requests = std::vector<std::shared_ptr<const Request>>;  // neighbours that move alike share one

bool move_alike(const MeshTensors& tensors, const Layouts& to, size_t i, size_t k) {
  return to[i] == to[k] && tensors[i].layout() == tensors[k].layout();
}

std::shared_ptr<const Request> request_of(const MeshTensor& tensor, const Layout& to,
                                          const RedistributeOptions& options) {
  auto request = std::make_shared<Request>();
  read_request(tensor, to, options, *request);
  return request;
}

// Throws BadArgument unless `out` is a place for this rank's part of the result.
void check_out(const at::Tensor& out, const MeshTensor& tensor, const Layout& to) {
  check_dense(out, "out");
  const auto position = to.mesh().position_of(tensor.rank());
  if (!position) throw BadArgument("out is given, but this rank is outside the target's mesh");
  const Box box = to.box_at(*position);
  const at::IntArrayRef shape = box.extent;
  if (out.sizes() != shape)
    throw BadArgument(c10::str("out has shape ", out.sizes(), ", but this rank's part has ", shape));
  if (out.scalar_type() != scalar_type_of(to.dtype()))
    throw BadArgument(c10::str("out has dtype ", dtype_name(out.scalar_type()), ", but the tensor has ",
                               dtype_name(scalar_type_of(to.dtype()))));
  if (out.is_conj() || out.is_neg()) throw BadArgument("out is conjugated or negated lazily");
  if (out.requires_grad())
    throw BadArgument("out requires grad: pass a tensor that does not, or out.detach()");
  const at::Tensor& local = tensor.local();
  if (local.defined() && local.device() != out.device())
    throw BadArgument(c10::str("out is on ", out.device(), ", but the tensor is on ", local.device()));
  check_apart(out, local.defined() ? local : empty_tensor({0}, out.options()));
}

void check_outs(const MeshTensors& tensors, const Layouts& to, const RedistributeListOptions& given) {
  if (given.outs.empty()) return;
  if (given.outs.size() != tensors.size())
    throw BadArgument(
        c10::str("out has ", given.outs.size(), " entries, but there are ", tensors.size(), " tensors"));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!given.outs[i].defined()) continue;
    const std::string problem = problem_in([&] { check_out(given.outs[i], tensors[i], to[i]); });
    if (!problem.empty()) throw BadArgument(c10::str("tensor ", i, ": ", problem));
  }
}

Requests read_requests(const MeshTensors& tensors, const Layouts& to, const RedistributeOptions& options) {
  if (to.size() != tensors.size())
    throw BadArgument(c10::str("there are ", to.size(), " targets for ", tensors.size(), " tensors"));
  Requests requests;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string problem = problem_in([&] {
      if (tensors[i].place()->ranks.numbers() != tensors[0].place()->ranks.numbers())
        throw BadArgument("its group has other ranks than that of the first");
      check_local(tensors[i]);
      const at::Tensor& local = tensors[i].local();
      const bool has_gradient = at::GradMode::is_enabled() && local.defined() && local.requires_grad();
      if (Capture::current() != nullptr && has_gradient) throw BadArgument(kNoGradient);
      const bool is_as_before = i > 0 && move_alike(tensors, to, i, i - 1);
      requests.push_back(is_as_before ? requests.back() : request_of(tensors[i], to[i], options));
    });
    if (!problem.empty()) throw BadArgument(c10::str("tensor ", i, ": ", problem));
  }
  return requests;
}

std::string words_of(const MeshTensors& tensors, const Layouts& to, const Requests& requests) {
  std::string words = c10::str("the number of tensors: ", tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    words += c10::str("\ntensor ", i, ": ", described(tensors[i].layout()), " to ", described(to[i]), " by ",
                      requests[i]->prepared->plan->text());
  return words;
}

CallHash hash_of(const MeshTensors& tensors, const Layouts& to, const Requests& requests) {
  CallHash hash{tensors.size(), 0};
  uint64_t layouts = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i == 0 || requests[i] != requests[i - 1]) layouts = tensors[i].layout().hash() * 31 + to[i].hash();
    hash[0] = hash[0] * 31 + layouts;
    hash[1] = hash[1] * 31 + requests[i]->prepared->hash;
  }
  return hash;
}

// Whether the ranks move their tensors without comparing first.
bool skips_exchange(const MeshTensors& tensors, const Group& group) {
  return std::all_of(tensors.begin(), tensors.end(), knows_all) &&
         !named("redistribute", [&] { return checks_every_call(tensors[0].local(), group); });
}

// What the last step of a plan left, where it is to stay.
at::Tensor put_in_place(const Walker& walker, bool is_input, const at::Tensor& out) {
  if (!is_input) return walker.held();
  return out.defined() ? out.copy_(walker.held()) : walker.held().clone();
}

std::vector<at::Tensor> walked(const MeshTensors& tensors, const Requests& requests,
                               const std::vector<at::Tensor>& inputs, const RedistributeListOptions& given,
                               uint64_t number) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const Group& group = tensors[0].group();
  Capture* const capture = Capture::current();
  if (capture != nullptr) capture->set_call(Collective::redistribute, number, group);
  std::vector<Walker> walkers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    walkers.emplace_back(*requests[i]->prepared, materialized(inputs[i]), out_of(given, i));
    if (capture != nullptr)
      keep_input(tensors[i], requests[i]->prepared->plan->to, inputs[i], walkers[i].held(), *capture);
  }
  walk(walkers, group, moves_of("redistribute", number));
  std::vector<at::Tensor> outs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor out = out_of(given, i);
    const bool is_input = requests[i]->prepared->stages.empty() && !returns_input(*requests[i], out);
    outs.push_back(put_in_place(walkers[i], is_input, out));
    if (out.defined() && !out.is_inference()) out.unsafeGetTensorImpl()->bump_version();
    if (is_input && capture != nullptr) capture->add_copy(i, outs[i]);
  }
  return outs;
}

// The adjoints of the tensors that want a gradient; null for the others.
Adjoints adjoints_of(const MeshTensors& tensors, const Requests& requests,
                     const std::vector<ListedFacts>& facts, const RedistributeOptions& options,
                     uint64_t number) {
  Adjoints adjoints(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (facts[i].wants_gradient && !requests[i]->keeps_layout)
      adjoints[i] = adjoint_of(tensors[i], *requests[i], options, number);
  }
  return adjoints;
}

// Ties the results that have an adjoint to their inputs.
void add_gradients(const Adjoints& adjoints, const std::vector<at::Tensor>& inputs,
                   std::vector<at::Tensor>& outs) {
  Adjoints chosen;
  std::vector<at::Tensor> xs;
  std::vector<at::Tensor> landed;
  for (size_t i = 0; i < adjoints.size(); ++i) {
    if (!adjoints[i]) continue;
    chosen.push_back(adjoints[i]);
    xs.push_back(inputs[i]);
    landed.push_back(outs[i].detach());  // a caller's tensor stays a plain one
  }
  if (chosen.empty()) return;
  const std::vector<at::Tensor> results = with_adjoints(std::move(xs), std::move(landed), chosen);
  size_t next = 0;
  for (size_t i = 0; i < adjoints.size(); ++i) {
    if (adjoints[i]) outs[i] = results[next++];
  }
}

MeshTensors moved(const MeshTensors& tensors, const Requests& requests, const std::vector<ListedFacts>& facts,
                  const RedistributeOptions& options, const RedistributeListOptions& given, uint64_t number) {
  const Adjoints adjoints = adjoints_of(tensors, requests, facts, options, number);
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const c10::DeviceType device = facts[i].device.value_or(c10::DeviceType::CPU);
    inputs.push_back(input_of(tensors[i], *requests[i]->prepared, device));
  }
  std::vector<at::Tensor> outs =
      named("redistribute", [&] { return walked(tensors, requests, inputs, given, number); });
  add_gradients(adjoints, inputs, outs);
  MeshTensors results;
  results.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    results.push_back(returns_input(*requests[i], out_of(given, i))
                          ? tensors[i]
                          : result_of(tensors[i], *requests[i]->prepared, outs[i]));
  }
  return results;
}

MeshTensors unmoved(const MeshTensors& tensors, const Layouts& to, const RedistributeListOptions& given) {
  MeshTensors same;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor out = out_of(given, i);
    const at::Tensor local = out.defined() ? out.copy_(tensors[i].local().detach()) : tensors[i].local();
    same.emplace_back(local, out.defined() ? out : tensors[i].anchor(), std::make_shared<const Layout>(to[i]),
                      tensors[i].place());
  }
  return same;
}

MeshTensors run_once(const MeshTensors& tensors, const Layouts& targets,
                     const RedistributeListOptions& given) {
  std::vector<at::Tensor> locals;
  for (const MeshTensor& tensor : tensors) locals.push_back(tensor.local());
  const Recording recording("redistribute", locals);
  const RedistributeOptions options{.topology = given.topology, .max_bytes = given.max_bytes};
  Layouts to = targets;
  Requests requests;
  const std::string problem = problem_in([&] {
    if (!given.copies.empty()) throw BadArgument(kCopiesNeedAGroup);
    if (given.relabel) to = relabelled_targets(tensors, targets, given);
    requests = read_requests(tensors, to, options);
    check_outs(tensors, to, given);
  });
  const Group& group = tensors[0].group();
  if (!group.distributed()) {
    if (!problem.empty()) raise("redistribute", problem, tensors[0].rank());
    return unmoved(tensors, to, given);
  }
  Call call{.collective = Collective::redistribute, .problem = problem};
  if (problem.empty()) {
    call.x = flags_of(locals);
    call.wanted = Wanted::whole;
    call.hash = hash_of(tensors, to, requests);
  }
  if (skips_exchange(tensors, group)) {
    if (!problem.empty()) raise("redistribute", problem, tensors[0].rank());
    return moved(tensors, requests, facts_in({call.x}), options, given, /*number=*/0);
  }
  call.words = [&] { return words_of(tensors, to, requests); };
  const Agreement agreement = agree(call, group);
  return moved(tensors, requests, facts_in(all_flags(call.x, agreement, group)), options, given,
               agreement.number());
}

MeshTensors run(const MeshTensors& tensors, const Layouts& to, const RedistributeListOptions& given) {
  if (given.group) {
    const auto targets = [&] {
      if (!given.outs.empty()) throw BadArgument("out is for tensors whose ranks all live");
      if (given.relabel) throw BadArgument(kRelabelNeedsAllRanks);
      return to;
    };
    return redistribute_to_living({tensors, given.copies}, targets, given);
  }
  if (tensors.empty()) raise("redistribute", "the list of tensors is empty", 0);
  const auto known = [&] {
    KnownLayouts all{.form = KnownLayouts::Form::list};
    for (const MeshTensor& tensor : tensors) all.layouts.emplace_back(tensor.layout());
    return all;
  };
  return telling(known, tensors[0].group(), [&] { return run_once(tensors, to, given); });
}

}  // namespace

MeshTensors redistribute(const MeshTensors& tensors, const Layouts& to,
                         const RedistributeListOptions& options) {
  return run(tensors, to, options);
}

Async<MeshTensors> redistribute_async(const MeshTensors& tensors, const Layouts& to,
                                      const RedistributeListOptions& options) {
  const bool posts =
      !tensors.empty() && can_be_posted(tensors[0].local(), options.group.value_or(tensors[0].group()));
  if (!posts) return Async<MeshTensors>(run(tensors, to, options));
  return post_call<MeshTensors>(options.group.value_or(tensors[0].group()),
                                [=] { return run(tensors, to, options); });
}

}  // namespace shardway
