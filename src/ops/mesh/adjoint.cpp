#include "ops/mesh/adjoint.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "ops/call/arguments.h"
#include "ops/call/numbering.h"
#include "ops/call/recording.h"

namespace shardway {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SavedAdjoints : torch::CustomClassHolder {
  explicit SavedAdjoints(Adjoints a) : adjoints(std::move(a)) {}
  Adjoints adjoints;
};

variable_list run_backward(const variable_list& grads, const Adjoints& adjoints);

// Not RouteFunction: the gradient follows a plan of its own, with several steps or none, rather than the
// reversed route of the forward call.
struct RedistributeFunction : torch::autograd::Function<RedistributeFunction> {
  // Wraps the results so that autograd does not take them for inputs.
  struct Landed {
    variable_list outs;
  };

  static variable_list forward(AutogradContext* ctx, at::TensorList xs, const Landed& landed,
                               const c10::intrusive_ptr<SavedAdjoints>& saved) {
    (void)xs;
    ctx->saved_data["adjoints"] = c10::IValue::make_capsule(saved);
    return landed.outs;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved =
        c10::static_intrusive_pointer_cast<SavedAdjoints>(ctx->saved_data["adjoints"].toCapsule());
    variable_list result = run_backward(grads, saved->adjoints);
    result.resize(grads.size() + 2);
    return result;
  }
};

variable_list moved_back(const variable_list& grads, const Adjoints& adjoints) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const Group& group = adjoints[0]->options.place->group;
  const uint64_t number = adjoints[0]->options.number;
  const bool is_list = grads.size() > 1;
  const Subject subject{.mark = gradient_mark("redistribute", number),
                        .name = "backward of redistribute",
                        .words = [&grads, number, is_list] {
                          if (!is_list) return gradient_words("redistribute", number, grads[0].sizes());
                          return c10::str("backward of redistribute of a list (call ", number, ")");
                        }};
  std::vector<Walker> walkers;
  for (size_t i = 0; i < grads.size(); ++i)
    walkers.emplace_back(*adjoints[i]->prepared, materialized(grads[i]));
  numbered(group, [&] { named("redistribute", [&] { walk(walkers, group, subject); }); });
  variable_list landed;
  for (size_t i = 0; i < grads.size(); ++i) {
    const at::Tensor& held = walkers[i].held();
    const bool is_unmoved = held.is_same(grads[i]);  // it must not get a gradient function here
    const at::Tensor own = is_unmoved ? held.detach() : held;
    landed.push_back(adjoints[i]->divisor == 1 ? own : own / adjoints[i]->divisor);
  }
  return landed;
}

variable_list run_backward(const variable_list& grads, const Adjoints& adjoints) {
  const auto is_identity = [](const auto& adjoint) {
    return adjoint->prepared->stages.empty() && adjoint->divisor == 1;
  };
  if (std::all_of(adjoints.begin(), adjoints.end(), is_identity)) return grads;
  const Recording recording("redistribute", grads, Recording::Pass::backward);
  const AdjointOptions& of_first = adjoints[0]->options;
  const auto moves = [](const auto& adjoint) { return communicates(*adjoint->prepared); };
  if (std::any_of(adjoints.begin(), adjoints.end(), moves))
    agree_on_gradient({Collective::redistribute, of_first.number}, grads[0], of_first.place->group);
  variable_list outs = moved_back(grads, adjoints);
  // Under create_graph every rank records the second gradient, since it is a collective as well.
  if (!at::GradMode::is_enabled()) return outs;
  Adjoints seconds;
  for (const auto& adjoint : adjoints) {
    AdjointOptions options = adjoint->options;
    options.gradient = without_addends(adjoint->prepared->plan->to);
    options.number = next_order(options.number);
    seconds.push_back(adjoint_of(*adjoint->prepared, options, adjoint->divisor));
  }
  return with_adjoints(grads, std::move(outs), seconds);
}

}  // namespace

Layout without_addends(const Layout& layout) {
  std::vector<Placement> placements = layout.placements();
  for (Placement& placement : placements) {
    if (placement.is_partial()) placement = replicate();
  }
  return layout.with(placements, layout.order());
}

std::shared_ptr<const Adjoint> adjoint_of(const PreparedPlan& prepared, const AdjointOptions& options,
                                          int64_t divisor) {
  std::shared_ptr<const PreparedPlan> back;
  const std::string problem = problem_in([&] {
    const auto found = plan(options.gradient, without_addends(prepared.plan->from),
                            {.topology = options.topology, .max_bytes = options.max_bytes});
    back = prepare(found, *options.place);
  });
  TORCH_CHECK_VALUE(problem.empty(), "redistribute: its gradient: ", problem);
  return std::make_shared<const Adjoint>(
      Adjoint{.prepared = back, .divisor = divisor * prepared.divisor, .options = options});
}

at::Tensor with_adjoint(const at::Tensor& x, const at::Tensor& out,
                        const std::shared_ptr<const Adjoint>& adjoint) {
  return with_adjoints({x}, {out}, {adjoint})[0];
}

std::vector<at::Tensor> with_adjoints(std::vector<at::Tensor> xs, std::vector<at::Tensor> outs,
                                      const Adjoints& adjoints) {
  for (at::Tensor& x : xs) {
    if (!x.requires_grad()) x = x.detach().requires_grad_();
  }
  return RedistributeFunction::apply(at::TensorList(xs), RedistributeFunction::Landed{std::move(outs)},
                                     c10::make_intrusive<SavedAdjoints>(adjoints));
}

}  // namespace shardway
