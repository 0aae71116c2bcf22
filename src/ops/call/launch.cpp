#include "ops/call/launch.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <memory>

#include "ops/call/arguments.h"
#include "ops/call/capture.h"
#include "ops/call/numbering.h"
#include "ops/call/recording.h"
#include "transport/common/giving_up.h"
#include "transport/common/param_comms.h"
#include "transport/common/transport.h"
#include "transport/common/two_routes.h"
#include "transport/memory/warm_memory.h"

namespace shardway {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// The routes by which the gradients of one call's results travel: one route, or those of a list.
struct SavedRoutes : torch::CustomClassHolder {
  struct Saved {
    Route route;
    int64_t whole_elements;
  };

  SavedRoutes(const Forward& f, Group g) : forward(f), group(std::move(g)) {}
  const char* name() const { return name_of(forward.collective); }

  Forward forward;
  Group group;
  std::vector<Saved> routes;
  bool is_list = false;
};

variable_list run_backward(const variable_list& grads, const SavedRoutes& saved);

// The gradient of every collective: its results came by routes, and their gradients travel by other routes.
struct RouteFunction : torch::autograd::Function<RouteFunction> {
  // Wraps the results so that autograd does not take them for inputs.
  struct Landed {
    variable_list outs;
  };

  static variable_list forward(AutogradContext* ctx, at::TensorList xs, const Landed& landed,
                               const c10::intrusive_ptr<SavedRoutes>& saved) {
    (void)xs;
    ctx->saved_data["routes"] = c10::IValue::make_capsule(saved);
    return landed.outs;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = c10::static_intrusive_pointer_cast<SavedRoutes>(ctx->saved_data["routes"].toCapsule());
    variable_list result = run_backward(grads, *saved);
    result.resize(grads.size() + 2);
    return result;
  }
};

// Returns the results, tied to the graph so that their gradients lead to `xs`.
variable_list with_gradients(variable_list xs, variable_list outs,
                             const c10::intrusive_ptr<SavedRoutes>& saved) {
  for (at::Tensor& x : xs) {
    if (!x.requires_grad()) x = x.detach().requires_grad_();
  }
  return RouteFunction::apply(at::TensorList(xs), RouteFunction::Landed{std::move(outs)}, saved);
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

bool is_slice(const Route& route) {
  return route.pattern == Pattern::own && route.divisor == 1 && route.pulls.size() == 1 &&
         route.pulls[0].mine == Box::whole(route.output_shape);
}

variable_list run_backward(const variable_list& grads, const SavedRoutes& saved) {
  const auto& routes = saved.routes;
  if (std::all_of(routes.begin(), routes.end(), [](const auto& one) { return is_slice(one.route); })) {
    variable_list slices;
    for (size_t i = 0; i < grads.size(); ++i) slices.push_back(own_slice(grads[i], routes[i].route));
    return slices;
  }
  const Recording recording(saved.name(), grads, Recording::Pass::backward);
  const auto is_own = [](const auto& one) { return one.route.pattern == Pattern::own; };
  if (!std::all_of(routes.begin(), routes.end(), is_own))
    agree_on_gradient(saved.forward, grads[0], saved.group);
  std::vector<Launch> launches;
  for (size_t i = 0; i < grads.size(); ++i) {
    Launch& run = launches.emplace_back(Launch{.x = grads[i],
                                               .collective = saved.forward.collective,
                                               .number = saved.forward.number,
                                               .pass = Pass::backward,
                                               .forward = routes[i].route,
                                               .whole_elements = routes[i].whole_elements});
    // Under create_graph every rank records the second gradient, since it is a collective as well.
    run.differentiable = at::GradMode::is_enabled() && (!is_own(routes[i]) || grads[i].requires_grad());
    if (run.differentiable) run.backward = transposed(run.forward);
  }
  if (saved.is_list) return launch_all(std::move(launches), saved.group).wait();
  return {launch(std::move(launches[0]), saved.group).wait()};
}

// A transfer that the transport's thread runs.
class PostedTransfer : public Transfer {
 public:
  explicit PostedTransfer(std::unique_ptr<Posted> posted) : posted_(std::move(posted)) {}
  void finish() override { posted_->wait(); }
  bool is_over() override { return posted_->is_over(); }

 private:
  std::unique_ptr<Posted> posted_;
};

// The subject refers to both arguments, which must outlive it; its words take no memory until asked for.
Subject subject_of(const Launch& launch, const at::Tensor& input) {
  const char* name = name_of(launch.collective);
  if (launch.pass == Pass::forward) return moves_of(name, launch.number);
  return {.mark = gradient_mark(name, launch.number),
          .name = backward_name_of(launch.collective),
          .words = [&launch, &input] {
            return gradient_words(name_of(launch.collective), launch.number, input.sizes());
          }};
}

std::unique_ptr<Transfer> started(const Launch& launch, const at::Tensor& input, const at::Tensor& out,
                                  const Group& group) {
  const bool is_own = launch.forward.pattern == Pattern::own;
  Transport& transport = is_own ? Group::alone().transport() : group.transport();
  const bool in_two = runs_in_two(launch.forward, input, transport);
  // Work on a device runs asynchronously on the caller's stream. If a call on a CPU takes two routes, a
  // thread has to start the second.
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

// Whether others take part. They do not if every rank's tensor came with the agreement, or if this rank takes
// only from itself.
bool involves_others(const Launch& launch) {
  return launch.forward.pattern != Pattern::own && launch.known.empty();
}

// To be told if this rank fails: the others, if they take part.
Transport& audience(bool is_for_others, const Group& group) {
  return is_for_others ? group.transport() : Group::alone().transport();
}

// The call that the gradients of the results belong to.
Forward forward_of(const Launch& launch) {
  return {.collective = launch.collective,
          .number = launch.pass == Pass::forward ? launch.number : next_order(launch.number)};
}

// Returns an event for the profiler, if one runs; the event ends when it is dropped. For a list, `launch` is
// its first.
std::shared_ptr<ParamComms> recorded(const Launch& launch, const std::vector<at::Tensor>& xs,
                                     const std::vector<at::Tensor>& outs, const Group& group) {
  if (launch.forward.pattern == Pattern::own) return nullptr;
  return std::make_shared<ParamComms>([&] {
    const char* suffix = launch.pass == Pass::backward ? "_backward" : "";
    const std::string name = std::string(name_of(launch.collective)) + suffix;
    CommsFacts facts = facts_of(name.c_str(), launch.forward, xs[0], outs[0], group.transport());
    facts.is_async = launch.progress == Progress::by_itself;
    if (xs.size() == 1) return facts;
    facts.inputs = xs;
    facts.outputs = outs;
    facts.input_splits.clear();
    facts.output_splits.clear();
    return facts;
  });
}

// Adds one tensor's moves to the call that this thread prepares.
void keep_moves(const Launch& launch, const at::Tensor& input, const at::Tensor& out, bool is_small,
                Capture& capture) {
  capture.add_input({.given = launch.x, .read = input});
  if (launch.forward.pattern == Pattern::own) return capture.add_alone(launch.forward, input, out);
  capture.add_together({.route = &launch.forward, .x = input, .out = out, .is_small = is_small});
  capture.add_least(launch.forward, static_cast<int64_t>(input.itemsize()));
}

// A call with its tensors, from the moment its route is known.
class UnderWay {
 public:
  // `capture` is that of the caller's thread, which may not be the one that learns the route.
  UnderWay(Launch launch, const Group& group, Capture* capture) : launch_(std::move(launch)), group_(group) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    input_ = materialized(launch_.x);
    out_ = launch_.out               ? *launch_.out
           : launch_.fresh.defined() ? launch_.fresh
                                     : fresh_output(launch_.forward, launch_.x);
    if (at::hasCallbacks()) comms_ = recorded(launch_, {input_}, {out_}, group_);
    if (capture == nullptr) return;
    capture->set_call(launch_.collective, launch_.number, group_);
    keep_moves(launch_, input_, out_, /*is_small=*/false, *capture);
  }

  // Returns the moves for the meeting, which makes them in place of start(). Returns nothing for work on a
  // device; a rank without a tensor learns in the meeting that it is on one.
  std::optional<RouteCall> moves() {
    has_moved_ = input_.is_cpu();
    if (!has_moved_) return std::nullopt;
    return RouteCall{&launch_.forward, input_, out_, std::move(comms_)};
  }
  bool has_moved() const { return has_moved_; }

  const Sizes& sizes() const { return launch_.sizes; }

  // Called once the moves have been made. Returns whether the call can be kept: another one may not have the
  // same gradient.
  bool keep_in(KeptCall& kept) {
    if (launch_.differentiable || !has_moved_) return false;
    kept.route = std::move(launch_.forward);
    kept.sizes = launch_.sizes;
    return true;
  }

  void start() {
    const at::AutoDispatchBelowADInplaceOrView guard;
    transfer_ = numbered(group_, [&] {
      return named(name_of(launch_.collective), [&] { return started(launch_, input_, out_, group_); });
    });
  }

  // Called after start(), or after the moves have been made.
  Async<at::Tensor> result() {
    if (launch_.progress == Progress::by_itself) comms_.reset();  // any thread may wait for the handle
    if (launch_.out && !out_.is_inference()) out_.unsafeGetTensorImpl()->bump_version();
    c10::intrusive_ptr<SavedRoutes> saved;
    if (launch_.differentiable) {
      saved = c10::make_intrusive<SavedRoutes>(forward_of(launch_), group_);
      saved->routes.push_back({std::move(launch_.backward), launch_.whole_elements});
    } else if (!transfer_) {
      return Async<at::Tensor>(out_);
    }
    auto finish = [x = launch_.x, out = out_, transfer = transfer_, saved, comms = comms_, group = group_,
                   is_for_others = involves_others(launch_), name = name_of(launch_.collective)]() mutable {
      if (transfer) {
        const at::AutoDispatchBelowADInplaceOrView guard;
        const auto land = [&] { or_give_up(audience(is_for_others, group), [&] { transfer->finish(); }); };
        numbered(group, [&] { named(name, land); });
      }
      comms.reset();
      // The caller's `out` itself stays a plain tensor, so that it can be passed again in the next step.
      return saved ? with_gradients({x}, {out.detach()}, saved)[0] : out;
    };
    return Async<at::Tensor>(std::move(finish),
                             [transfer = transfer_] { return !transfer || transfer->is_over(); });
  }

 private:
  Launch launch_;
  const Group& group_;
  at::Tensor input_;
  at::Tensor out_;
  std::shared_ptr<ParamComms> comms_;
  std::shared_ptr<Transfer> transfer_;
  bool has_moved_ = false;
};

// The same for a list.
class ListUnderWay {
 public:
  ListUnderWay(std::vector<Launch> launches, Group group)
      : launches_(std::move(launches)), group_(std::move(group)), progress_(launches_[0].progress) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    for (const Launch& launch : launches_) {
      inputs_.push_back(materialized(launch.x));
      outs_.push_back(fresh_output(launch.forward, launch.x));
    }
    if (at::hasCallbacks()) comms_ = recorded(launches_[0], inputs_, outs_, group_);
    if (Capture* capture = Capture::current()) keep(*capture);
    for (Launch& launch : launches_) launch.progress = Progress::by_caller;  // for what this rank does alone
  }

  // `self` owns this object and must live while the call is under way; a posted call keeps a copy.
  void start(const std::shared_ptr<ListUnderWay>& self) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    for (size_t i = 0; i < launches_.size(); ++i) {
      if (!involves_others(launches_[i])) {
        started(launches_[i], inputs_[i], outs_[i], group_)->finish();  // by this rank alone
      } else {
        calls_.push_back({.route = &launches_[i].forward,
                          .x = inputs_[i],
                          .out = outs_[i],
                          .is_small = is_small(launches_[i])});
      }
    }
    if (!calls_.empty()) in_words([&] { transfer_ = start_moves(self); });
    if (progress_ == Progress::by_itself) comms_.reset();  // any thread may wait for the handle
  }

  // Waits for the results. Called once.
  const std::vector<at::Tensor>& results() {
    if (transfer_) {
      const at::AutoDispatchBelowADInplaceOrView guard;
      in_words([&] { or_give_up(group_.transport(), [&] { transfer_->finish(); }); });
    }
    comms_.reset();
    add_gradients();
    return outs_;
  }

  bool is_over() const { return !transfer_ || transfer_->is_over(); }

 private:
  void keep(Capture& capture) const {
    capture.set_call(launches_[0].collective, launches_[0].number, group_);
    for (size_t i = 0; i < launches_.size(); ++i)
      keep_moves(launches_[i], inputs_[i], outs_[i], is_small(launches_[i]), capture);
  }

  bool is_small(const Launch& launch) const {
    const int64_t most_bytes = launch.x.is_cpu() ? group_.transport().slot_bytes() : kSmallOnDevice;
    return launch.whole_elements >= 0 &&
           launch.whole_elements * static_cast<int64_t>(launch.x.itemsize()) <= most_bytes;
  }

  std::unique_ptr<Transfer> start_moves(const std::shared_ptr<ListUnderWay>& self) {
    Transport& transport = group_.transport();
    const bool posts = progress_ == Progress::by_itself && inputs_[0].is_cpu() && transport.has_thread();
    if (!posts) return transport.start_all(calls_, subject());
    return std::make_unique<PostedTransfer>(transport.post(
        [self] { self->group_.transport().start_all(self->calls_, self->subject())->finish(); }));
  }

  Subject subject() const {
    const Launch& first = launches_[0];
    const char* name = name_of(first.collective);
    if (first.pass == Pass::forward) return moves_of(name, first.number);
    return {.mark = gradient_mark(name, first.number),
            .name = backward_name_of(first.collective),
            .words = [name, number = first.number] {
              return c10::str("backward of ", name, " of a list (call ", number, ")");
            }};
  }

  void add_gradients() {
    auto saved = c10::make_intrusive<SavedRoutes>(forward_of(launches_[0]), group_);
    saved->is_list = true;
    variable_list xs;
    variable_list landed;
    for (size_t i = 0; i < launches_.size(); ++i) {
      if (!launches_[i].differentiable) continue;
      xs.push_back(launches_[i].x);
      landed.push_back(outs_[i]);
      saved->routes.push_back({std::move(launches_[i].backward), launches_[i].whole_elements});
    }
    if (xs.empty()) return;
    const variable_list results = with_gradients(std::move(xs), std::move(landed), saved);
    size_t next = 0;
    for (size_t i = 0; i < launches_.size(); ++i) {
      if (launches_[i].differentiable) outs_[i] = results[next++];
    }
  }

  template <class Body>
  void in_words(Body&& body) const {
    numbered(group_, [&] { named(name_of(launches_[0].collective), body); });
  }

  // Bytes of all ranks' tensors together, on a device: up to this size, packing is faster than a transfer of
  // its own.
  static constexpr int64_t kSmallOnDevice = 256 << 10;

  std::vector<Launch> launches_;
  Group group_;
  Progress progress_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outs_;
  std::shared_ptr<ParamComms> comms_;
  std::vector<RouteCall> calls_;
  std::unique_ptr<Transfer> transfer_;
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
  return or_give_up(audience(involves_others(launch), group), [&] {
    UnderWay call(std::move(launch), group, Capture::current());
    call.start();
    return call.result();
  });
}

Async<std::vector<at::Tensor>> launch_all(std::vector<Launch> launches, const Group& group) {
  const bool is_for_others = std::any_of(launches.begin(), launches.end(), involves_others);
  return or_give_up(audience(is_for_others, group), [&] {
    auto list = std::make_shared<ListUnderWay>(std::move(launches), group);
    list->start(list);
    return Async<std::vector<at::Tensor>>([list] { return list->results(); },
                                          [list] { return list->is_over(); });
  });
}

Async<at::Tensor> launch_in_meeting(const Call& call, const std::function<Launch(Agreement)>& decide,
                                    const Group& group) {
  std::optional<UnderWay> under_way;
  Capture* const capture = Capture::current();
  agree_and_move(call, group, [&](Agreement agreement) {
    under_way.emplace(decide(std::move(agreement)), group, capture);
    return under_way->moves();
  });
  if (!under_way->has_moved()) under_way->start();
  return under_way->result();
}

Ragged launch_and_keep(const KeptCallKey& key, KeptCalls& calls, const Anew& anew, const Group& group) {
  const Call call = anew.read();
  auto kept = call.problem.empty() ? std::make_unique<KeptCall>(key) : nullptr;
  std::optional<UnderWay> under_way;
  const auto decide = [&](Agreement agreement) {
    under_way.emplace(anew.decide(call, std::move(agreement)), group, nullptr);
    return under_way->moves();
  };
  agree_and_move(call, group, decide, kept.get());
  if (!under_way->has_moved()) under_way->start();
  Ragged result{.tensor = {}, .sizes = under_way->sizes()};
  if (kept && under_way->keep_in(*kept)) calls.put(std::move(kept));
  result.tensor = under_way->result().wait();
  return result;
}

Ragged launch_again(std::unique_ptr<KeptCall> kept, const KeptCallKey& key, KeptCalls& calls,
                    const Anew& anew, const Group& group) {
  const at::Tensor out = key.out != nullptr ? *key.out : fresh_output(kept->route, key.x);
  std::optional<UnderWay> changed;
  const auto decide = [&](const Call& call, Agreement agreement) {
    Launch launch = anew.decide(call, std::move(agreement));
    // An all-reduce is under way: it writes to the output that it began with.
    if (!launch.out && launch.forward.pattern == Pattern::all_reduce) launch.fresh = out;
    changed.emplace(std::move(launch), group, nullptr);
    return changed->moves();
  };
  agree_again(*kept, calls, {.route = &kept->route, .x = key.x, .out = out}, group, anew.read, decide);
  if (changed) {
    const Sizes sizes = changed->sizes();
    return {.tensor = changed->result().wait(), .sizes = sizes};
  }
  if (key.out != nullptr && !out.is_inference()) out.unsafeGetTensorImpl()->bump_version();
  Ragged result{.tensor = out, .sizes = kept->sizes};
  calls.put(std::move(kept));
  return result;
}

}  // namespace shardway
