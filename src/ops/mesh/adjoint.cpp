#include "ops/mesh/adjoint.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/call/arguments.h"
#include "ops/call/numbering.h"
#include "ops/call/recording.h"

namespace shardway {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct SavedAdjoint : torch::CustomClassHolder {
  explicit SavedAdjoint(std::shared_ptr<const Adjoint> a) : adjoint(std::move(a)) {}
  std::shared_ptr<const Adjoint> adjoint;
};

at::Tensor run_backward(const at::Tensor& grad, const Adjoint& adjoint);

struct RedistributeFunction : torch::autograd::Function<RedistributeFunction> {
  // `landed` is wrapped so that autograd takes it for a result and not for an input.
  struct Landed {
    at::Tensor out;
  };

  static Variable forward(AutogradContext* ctx, const Variable& x, const Landed& landed,
                          const c10::intrusive_ptr<SavedAdjoint>& saved) {
    (void)x;
    ctx->saved_data["adjoint"] = c10::IValue::make_capsule(saved);
    return landed.out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved =
        c10::static_intrusive_pointer_cast<SavedAdjoint>(ctx->saved_data["adjoint"].toCapsule());
    return {run_backward(grads[0], *saved->adjoint), Variable(), Variable()};
  }
};

at::Tensor run_backward(const at::Tensor& grad, const Adjoint& adjoint) {
  const Way& way = *adjoint.way;
  if (way.stages.empty() && adjoint.divisor == 1) return grad;
  const Recording recording("redistribute", grad, Recording::Pass::backward);
  const Group& group = adjoint.options.place->group;
  const uint64_t number = adjoint.options.number;
  if (communicates(way)) agree_on_gradient({Collective::redistribute, number}, grad, group);
  at::Tensor out = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const Subject subject{.mark = gradient_mark("redistribute", number), .words = [&grad, number] {
                            return gradient_words("redistribute", number, grad.sizes());
                          }};
    const at::Tensor landed = numbered(group, [&] {
      return named("redistribute", [&] {
        Walker walker(way, materialized(grad));
        return walk(walker, {}, group, subject);
      });
    });
    return adjoint.divisor == 1 ? landed : landed / adjoint.divisor;
  }();
  // Under create_graph every rank records the second gradient, since it is a collective as well.
  if (!at::GradMode::is_enabled()) return out;
  AdjointOptions options = adjoint.options;
  options.gradient = without_addends(way.plan->to);
  options.number = next_order(number);
  return with_adjoint(grad, out, adjoint_of(way, options, adjoint.divisor));
}

}  // namespace

Layout without_addends(const Layout& layout) {
  std::vector<Placement> placements = layout.placements();
  for (Placement& placement : placements) {
    if (placement.is_partial()) placement = replicate();
  }
  return layout.with(placements, layout.order());
}

std::shared_ptr<const Adjoint> adjoint_of(const Way& way, const AdjointOptions& options, int64_t divisor) {
  std::shared_ptr<const Way> back;
  const std::string problem = problem_in([&] {
    const auto found = plan(options.gradient, without_addends(way.plan->from),
                            {.topology = options.topology, .max_bytes = options.max_bytes});
    back = way_along(found, *options.place);
  });
  TORCH_CHECK_VALUE(problem.empty(), "redistribute: its gradient: ", problem);
  return std::make_shared<const Adjoint>(
      Adjoint{.way = back, .divisor = divisor * way.divisor, .options = options});
}

at::Tensor with_adjoint(const at::Tensor& x, const at::Tensor& out,
                        const std::shared_ptr<const Adjoint>& adjoint) {
  const at::Tensor leaf = x.requires_grad() ? x : x.detach().requires_grad_();
  return RedistributeFunction::apply(leaf, RedistributeFunction::Landed{out},
                                     c10::make_intrusive<SavedAdjoint>(adjoint));
}

}  // namespace shardway
