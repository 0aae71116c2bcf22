#include "shardway/redistribute.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

#include "ops/adjoint.h"
#include "ops/arguments.h"
#include "ops/dtypes.h"
#include "ops/header.h"
#include "ops/recording.h"
#include "ops/way.h"
#include "transport/transport.h"

namespace shardway {
namespace {

using Place = MeshTensor::Place;

// One rank's call, as it understood its arguments.
struct Request {
  std::shared_ptr<const Way> way = nullptr;
  std::optional<Layout> gradient = std::nullopt;  // of the result's gradient
  bool keeps_layout = false;                      // the result is the input
};

std::shared_ptr<const Plan> chosen_plan(const Layout& from, const Layout& to,
                                        const RedistributeOptions& options) {
  if (!options.plan) return plan(from, to, {.topology = options.topology, .max_bytes = options.max_bytes});
  if (options.topology || options.max_bytes)
    throw BadArgument("topology and max_bytes are for making a plan, but one was given");
  check_leads(*options.plan, from, to);
  return options.plan;
}

// How the gradient of the result is said to lie: in the result's own boxes, so that shards are as they are.
Layout gradient_layout(const Layout& to, const std::optional<std::vector<Placement>>& given) {
  if (!given) return without_addends(to);
  const auto has_same_box = [](const Placement& a, const Placement& b) {
    return a.is_shard() || b.is_shard() ? a == b : true;
  };
  const std::vector<Placement>& own = to.placements();
  if (!std::equal(given->begin(), given->end(), own.begin(), own.end(), has_same_box)) {
    std::string text;
    for (const Placement& placement : *given) text += (text.empty() ? "" : ",") + to_string(placement);
    throw BadArgument("grad_placements " + text + " do not have the boxes of the result, which is " +
                      placements_text(to));
  }
  return to.with(*given, to.order());
}

void check_local(const MeshTensor& tensor) {
  const at::Tensor& local = tensor.local();
  if (!local.defined()) return;
  check_movable(local, tensor.group(), "local");
  const auto box = tensor.box();
  if (!box || local.sizes() != at::IntArrayRef(box->extent))
    throw BadArgument(c10::str("local has been given the shape ", local.sizes(), ", which is not its box of ",
                               to_string(tensor.layout())));
}

// Fills in what can be understood before something cannot.
void read_request(const MeshTensor& tensor, const Layout& to, const RedistributeOptions& options,
                  Request& request) {
  check_local(tensor);
  const Layout& from = tensor.layout();
  request.way = way_along(chosen_plan(from, to, options), *tensor.place());
  request.gradient = gradient_layout(to, options.grad_placements);
  request.keeps_layout = from == to && !options.grad_placements && request.way->stages.empty();
  const at::Tensor& local = tensor.local();
  if (request.way->combines && local.defined()) check_reduction(local, *request.way->combines);
}

// With the ranks of its mesh, where those are others than 0, 1, …
std::string described(const Layout& layout) {
  const Mesh& mesh = layout.mesh();
  if (mesh == Mesh(mesh.shape())) return to_string(layout);
  return c10::str(to_string(layout), " of ranks ", at::IntArrayRef(mesh.ranks()));
}

std::string words_of(const Layout& from, const Layout& to, const Request& request, const Place& place) {
  return c10::str("the tensor: ", described(from), "\nthe target: ", described(to),
                  "\nthe gradient: ", described(*request.gradient), "\nthe plan: ", request.way->plan->text(),
                  "\nthe group's ranks: ", at::IntArrayRef(place.ranks.numbers()));
}

Call call_of(const MeshTensor& tensor, const Layout& to, const Request& request) {
  const Layout& from = tensor.layout();
  return {.collective = Collective::redistribute,
          .x = tensor.local(),
          .wanted = request.way->wanted,
          .hash = CallHash{from.hash() * 31 + to.hash(), request.way->hash * 31 + request.gradient->hash()}};
}

// What a rank knows of the others before the first step.
struct Known {
  bool any_requires_grad = false;
  KnownInputs inputs = {};
  c10::DeviceType device = c10::DeviceType::CPU;  // of the ranks that have a tensor
};

// Whether every rank has all it needs, as far as this one understands the call. A rank outside the mesh must
// hear of a gradient, which may need it.
bool is_local(const MeshTensor& tensor, const Request& request) {
  const Group& group = tensor.group();
  if (!request.way) return is_everywhere(tensor.layout(), group);
  return !communicates(*request.way) && tensor.layout().mesh().size() == group.size();
}

// Compares with the other ranks: collective. Where nothing is to be communicated, that is left out unless it
// costs next to nothing or is asked for. Throws c10::ValueError for a problem of any rank that is heard of.
Known settle(const Call& call, const Request& request, const MeshTensor& tensor) {
  const Group& group = tensor.group();
  if (is_local(tensor, request) && !named("redistribute", [&] { return checks_every_call(group); })) {
    if (!call.problem.empty()) raise("redistribute", call.problem, tensor.rank());
    return {.any_requires_grad = call.requires_grad()};
  }
  const Agreement agreement = agree(call, group);
  return {.any_requires_grad = agreement.any_requires_grad(),
          .inputs = agreement.known_inputs(),
          .device = agreement.device().value_or(c10::DeviceType::CPU)};
}

// The local tensor, or on a rank outside the mesh one without elements.
at::Tensor input_of(const MeshTensor& tensor, const Way& way, c10::DeviceType device) {
  if (tensor.local().defined()) return tensor.local();
  return at::empty(input_shape(way, *tensor.place()),
                   at::dtype(scalar_type_of(tensor.layout().dtype())).device(device));
}

MeshTensor result_of(const MeshTensor& tensor, const Way& way, const at::Tensor& out) {
  const bool is_inside = way.plan->to.mesh().position_of(tensor.rank()).has_value();
  const std::shared_ptr<const Layout> layout(way.plan, &way.plan->to);
  if (is_inside) return {out, out, layout, tensor.place()};
  return {at::Tensor(), out.requires_grad() ? out : at::Tensor(), layout, tensor.place()};
}

MeshTensor moved(const MeshTensor& tensor, const Request& request, const Known& known,
                 const RedistributeOptions& options) {
  if (request.keeps_layout) return tensor;
  const Way& way = *request.way;
  const at::Tensor x = input_of(tensor, way, known.device);
  std::shared_ptr<const Adjoint> adjoint;
  if (known.any_requires_grad) {
    adjoint = adjoint_of(way, {.gradient = *request.gradient,
                               .place = tensor.place(),
                               .topology = options.topology,
                               .max_bytes = options.max_bytes});
  }
  at::Tensor out = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return named("redistribute", [&] { return walk(way, materialized(x), known.inputs, tensor.group()); });
  }();
  if (way.stages.empty()) out = out.clone();
  if (adjoint) out = with_adjoint(x, out, adjoint);
  return result_of(tensor, way, out);
}

MeshTensor run(const MeshTensor& tensor, const std::function<Layout()>& target,
               const RedistributeOptions& options) {
  const Recording recording("redistribute", tensor.local());
  std::optional<Layout> to;
  Request request;
  const std::string problem = problem_in([&] {
    to = target();
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
  return moved(tensor, request, settle(call, request, tensor), options);
}

// Whether a posted call can serve: work on a device makes its way by itself, on the caller's stream.
bool is_on_cpu(const MeshTensor& tensor) {
  if (tensor.local().defined()) return tensor.local().is_cpu();
  return tensor.group().transport().refuses(c10::Device(c10::kCUDA, 0)).has_value();
}

Async<MeshTensor> run_async(const MeshTensor& tensor, std::function<Layout()> target,
                            const RedistributeOptions& options) {
  const bool posts = tensor.group().distributed() && is_on_cpu(tensor);
  if (!posts) return Async<MeshTensor>([result = run(tensor, target, options)] { return result; });
  auto result = std::make_shared<std::optional<MeshTensor>>();
  const std::shared_ptr<Posted> posted = tensor.group().transport().post(
      [result, tensor, options, target = std::move(target)] { *result = run(tensor, target, options); });
  return Async<MeshTensor>([result, posted] {
    posted->wait();
    return **result;
  });
}

std::function<Layout()> target_of(const MeshTensor& tensor, const std::vector<Placement>& placements,
                                  const RedistributeOptions& options) {
  return [=, from = tensor.layout(), mesh = options.mesh, order = options.order] {
    return from.with(mesh ? *mesh : from.mesh(), placements, order);
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
