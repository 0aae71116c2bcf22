#include "ops/call/launch.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>

#include "ops/call/arguments.h"
#include "ops/call/numbering.h"
#include "ops/call/recording.h"
#include "transport/common/param_comms.h"
#include "transport/common/transport.h"
#include "transport/common/two_routes.h"
#include "transport/memory/warm_memory.h"

namespace shardway {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct SavedRoute : torch::CustomClassHolder {
  SavedRoute(const Forward& f, Route r, Group g) : forward(f), route(std::move(r)), group(std::move(g)) {}
  const char* name() const { return name_of(forward.collective); }

  Forward forward;
  Route route;
  Group group;
};

at::Tensor run_backward(const at::Tensor& grad, const SavedRoute& saved);

// The one gradient of the library: the result of a route, whose gradient travels by another.
struct RouteFunction : torch::autograd::Function<RouteFunction> {
  // `landed` is wrapped so that autograd takes it for a result and not for an input.
  struct Landed {
    at::Tensor out;
  };

  static Variable forward(AutogradContext* ctx, const Variable& x, const Landed& landed,
                          const c10::intrusive_ptr<SavedRoute>& saved) {
    (void)x;
    ctx->saved_data["route"] = c10::IValue::make_capsule(saved);
    return landed.out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = c10::static_intrusive_pointer_cast<SavedRoute>(ctx->saved_data["route"].toCapsule());
    return {run_backward(grads[0], *saved), Variable(), Variable()};
  }
};

at::Tensor with_gradient(const at::Tensor& x, const at::Tensor& out,
                         const c10::intrusive_ptr<SavedRoute>& saved) {
  const at::Tensor leaf = x.requires_grad() ? x : x.detach().requires_grad_();
  return RouteFunction::apply(leaf, RouteFunction::Landed{out}, saved);
}

// The part of the gradient that this rank keeps, as a view: no communication, no copy.
at::Tensor own_slice(const at::Tensor& grad, const Route& route) {
  at::Tensor slice = grad;
  const Box& box = route.pulls[0].theirs;
  for (size_t d = 0; d < box.offset.size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    if (box.extent[d] != grad.size(dim)) slice = slice.narrow(dim, box.offset[d], box.extent[d]);
  }
  return slice;
}

at::Tensor run_backward(const at::Tensor& grad, const SavedRoute& saved) {
  const Route& route = saved.route;
  const bool is_own = route.pattern == Pattern::own;
  const bool is_slice = is_own && route.divisor == 1 && route.pulls.size() == 1 &&
                        route.pulls[0].mine == Box::whole(route.output_shape);
  if (is_slice) return own_slice(grad, route);
  const Recording recording(saved.name(), grad, Recording::Pass::backward);
  if (!is_own) agree_on_gradient(saved.forward, grad, saved.group);
  Launch run{.x = grad,
             .collective = saved.forward.collective,
             .number = saved.forward.number,
             .pass = Pass::backward,
             .forward = route};
  // Under create_graph every rank records the second gradient, since it is a collective as well.
  run.differentiable = at::GradMode::is_enabled() && (!is_own || grad.requires_grad());
  if (run.differentiable) run.backward = transposed(route);
  return launch(std::move(run), saved.group).wait();
}

// A transfer that a thread of the transport makes.
class PostedTransfer : public Transfer {
 public:
  explicit PostedTransfer(std::unique_ptr<Posted> posted) : posted_(std::move(posted)) {}
  void finish() override { posted_->wait(); }

 private:
  std::unique_ptr<Posted> posted_;
};

// An all-reduce that the engine does not know, of more than every rank would want to pull from every other.
bool runs_in_two(const Route& route, const at::Tensor& x, Transport& transport) {
  return route.pattern == Pattern::all_reduce && static_cast<int64_t>(x.nbytes()) > transport.slot_bytes() &&
         !transport.has_own(route, x);
}

// The subject refers to both, which outlive it; its words take no memory until they are asked for.
Subject subject_of(const Launch& launch, const at::Tensor& input) {
  const char* name = name_of(launch.collective);
  if (launch.pass == Pass::forward) return moves_of(name, launch.number);
  return {.mark = gradient_mark(name, launch.number), .words = [&launch, &input] {
            return gradient_words(name_of(launch.collective), launch.number, input.sizes());
          }};
}

std::unique_ptr<Transfer> started(const Launch& launch, const at::Tensor& input, const at::Tensor& out,
                                  const Group& group) {
  const bool is_own = launch.forward.pattern == Pattern::own;
  Transport& transport = is_own ? Group::alone().transport() : group.transport();
  const bool in_two = runs_in_two(launch.forward, input, transport);
  // Work on a device makes its way by itself, on the caller's stream; of two routes on a CPU the second has
  // to be started by somebody.
  const bool posts =
      launch.progress == Progress::by_itself && input.is_cpu() && (transport.has_thread() || in_two);
  if (!posts) {
    const Subject subject = subject_of(launch, input);
    return in_two ? start_in_two(transport, launch.forward, input, out, subject)
                  : transport.start(launch.forward, input, out, launch.known, subject);
  }
  return std::make_unique<PostedTransfer>(transport.post([group, launch, input, out] {
    Launch here = launch;
    here.progress = Progress::by_caller;
    started(here, input, out, group)->finish();
  }));
}

// For a profiler, if one runs: an event that ends when it is dropped.
std::shared_ptr<ParamComms> recorded(const Launch& launch, const at::Tensor& x, const at::Tensor& out,
                                     const Group& group) {
  if (!at::hasCallbacks() || launch.forward.pattern == Pattern::own) return nullptr;
  return std::make_shared<ParamComms>([&] {
    const char* suffix = launch.pass == Pass::backward ? "_backward" : "";
    const std::string name = std::string(name_of(launch.collective)) + suffix;
    CommsFacts facts = facts_of(name.c_str(), launch.forward, x, out, group.transport());
    facts.is_async = launch.progress == Progress::by_itself;
    return facts;
  });
}

// A call with its tensors, from the moment at which its route is known.
class UnderWay {
 public:
  UnderWay(Launch launch, const Group& group) : launch_(std::move(launch)), group_(group) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    input_ = materialized(launch_.x);
    out_ = launch_.out               ? *launch_.out
           : launch_.fresh.defined() ? launch_.fresh
                                     : fresh_output(launch_.forward, launch_.x);
    comms_ = recorded(launch_, input_, out_, group_);
  }

  // Those that are to be made by whoever does that in place of start(); none for work on a device, which a
  // rank without a tensor hears of in the meeting.
  std::optional<RouteCall> moves() const {
    if (!input_.is_cpu()) return std::nullopt;
    return RouteCall{&launch_.forward, input_, out_};
  }

  void start() {
    const at::AutoDispatchBelowADInplaceOrView guard;
    transfer_ = numbered(group_, [&] {
      return named(name_of(launch_.collective), [&] { return started(launch_, input_, out_, group_); });
    });
  }

  // Once it has been started, or its moves have been made.
  Async<at::Tensor> result() {
    if (launch_.progress == Progress::by_itself) comms_.reset();  // its handle may be waited for anywhere
    if (launch_.out && !out_.is_inference()) out_.unsafeGetTensorImpl()->bump_version();
    const bool is_forward = launch_.pass == Pass::forward;
    const Forward forward{.collective = launch_.collective,
                          .number = is_forward ? launch_.number : next_order(launch_.number)};
    auto saved = c10::make_intrusive<SavedRoute>(forward, std::move(launch_.backward), group_);
    return Async<at::Tensor>([x = launch_.x, out = out_, transfer = transfer_, saved, comms = comms_,
                              differentiable = launch_.differentiable]() mutable {
      if (transfer) {
        const at::AutoDispatchBelowADInplaceOrView guard;
        numbered(saved->group, [&] { named(saved->name(), [&] { transfer->finish(); }); });
      }
      comms.reset();
      // The caller's `out` itself stays a plain tensor, which may be given again in the next step.
      return differentiable ? with_gradient(x, out.detach(), saved) : out;
    });
  }

 private:
  Launch launch_;
  const Group& group_;
  at::Tensor input_;
  at::Tensor out_;
  std::shared_ptr<ParamComms> comms_;
  std::shared_ptr<Transfer> transfer_;
};

}  // namespace

Route gradient_route(const Route& forward, Grad grad) {
  Route backward = transposed(forward);
  if (grad == Grad::mean) backward.divisor *= forward.size;
  return grad == Grad::local ? own_part(backward) : backward;
}

at::Tensor fresh_output(const Route& route, const at::Tensor& like) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const auto options = like.options().requires_grad(false);
  // The collectives fill their output; only other routes need to be looked at.
  const bool is_collective = route.pattern != Pattern::own && route.pattern != Pattern::exchange;
  const bool is_filled = is_collective || fills_output(landings(route), route);
  at::Tensor out = warm_empty(route.output_shape, options);
  return is_filled ? out : out.zero_();
}

Async<at::Tensor> launch(Launch launch, const Group& group) {
  UnderWay call(std::move(launch), group);
  call.start();
  return call.result();
}

Async<at::Tensor> launch_in_meeting(const Call& call, const std::function<Launch(Agreement)>& decide,
                                    const Group& group) {
  std::optional<UnderWay> under_way;
  agree_and_move(call, group, [&](Agreement agreement) {
    under_way.emplace(decide(std::move(agreement)), group);
    return under_way->moves();
  });
  if (!under_way->moves()) under_way->start();
  return under_way->result();
}

}  // namespace shardway
