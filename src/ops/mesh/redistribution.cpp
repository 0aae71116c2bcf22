#include "ops/mesh/redistribution.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "ops/call/arguments.h"
#include "ops/call/dtypes.h"
#include "ops/mesh/group_topology.h"
#include "transport/memory/tensors.h"

namespace shardway {
namespace {

std::shared_ptr<const Plan> chosen_plan(const MeshTensor& tensor, const Layout& to,
                                        const RedistributeOptions& options) {
  if (!options.plan) {
    return plan(tensor.layout(), to,
                {.topology = topology_for(tensor, options.topology), .max_bytes = options.max_bytes});
  }
  if (options.topology || options.max_bytes)
    throw BadArgument("topology and max_bytes are for making a plan, but one was given");
  check_leads(*options.plan, tensor.layout(), to);
  return options.plan;
}

// The layout of the result's gradient. It has the boxes of the result, so grad_placements cannot change
// shards. Throws BadArgument if they do.
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

}  // namespace

Layout relabelled_target(const MeshTensor& tensor, const Layout& to, const RedistributeOptions& options) {
  if (options.plan) throw BadArgument("relabel is for making a plan, but one was given");
  const PlanOptions how{.topology = topology_for(tensor, options.topology),
                        .max_bytes = options.max_bytes,
                        .relabel = options.relabel};
  return plan(tensor.layout(), to, how)->to;
}

std::vector<Layout> relabelled_targets(const std::vector<MeshTensor>& tensors, const std::vector<Layout>& to,
                                       const RedistributeListOptions& options) {
  std::vector<Layout> from;
  for (const MeshTensor& tensor : tensors) from.push_back(tensor.layout());
  const PlanOptions how{.topology = topology_for(tensors[0], options.topology),
                        .max_bytes = options.max_bytes};
  return relabelled(from, to, *options.relabel, how).to;
}

std::string described(const Layout& layout) {
  const Mesh& mesh = layout.mesh();
  if (mesh == Mesh(mesh.shape())) return to_string(layout);
  return c10::str(to_string(layout), " of ranks ", at::IntArrayRef(mesh.ranks()));
}

void check_local(const MeshTensor& tensor) { check_local(tensor, tensor.group()); }

void check_local(const MeshTensor& tensor, const Group& group) {
  const at::Tensor& local = tensor.local();
  if (!local.defined()) return;
  check_movable(local, group, "local");
  const auto box = tensor.box();
  if (!box || local.sizes() != at::IntArrayRef(box->extent))
    throw BadArgument(c10::str("local has been given the shape ", local.sizes(), ", which is not its box of ",
                               to_string(tensor.layout())));
}

bool knows_all(const MeshTensor& tensor) {
  return tensor.layout().mesh().size() == tensor.group().size() &&
         is_on_device(tensor.local(), tensor.group());
}

void read_request(const MeshTensor& tensor, const Layout& to, const RedistributeOptions& options,
                  Request& request) {
  const Layout& from = tensor.layout();
  request.prepared = prepare(chosen_plan(tensor, to, options), *tensor.place());
  request.gradient = gradient_layout(to, options.grad_placements);
  request.keeps_layout = from == to && !options.grad_placements && request.prepared->stages.empty();
  const at::Tensor& local = tensor.local();
  if (request.prepared->combines && local.defined()) check_reduction(local, *request.prepared->combines);
}

std::string words_of(const Layout& from, const Layout& to, const Request& request,
                     const MeshTensor::Place& place) {
  return c10::str("the tensor: ", described(from), "\nthe target: ", described(to),
                  "\nthe gradient: ", described(*request.gradient),
                  "\nthe plan: ", request.prepared->plan->text(),
                  "\nthe group's ranks: ", at::IntArrayRef(place.ranks.numbers()));
}

at::Tensor input_of(const MeshTensor& tensor, const PreparedPlan& prepared, c10::DeviceType device) {
  if (tensor.local().defined()) return tensor.local();
  return empty_tensor(input_shape(prepared, *tensor.place()),
                      at::dtype(scalar_type_of(tensor.layout().dtype())).device(device));
}

size_t keep_input(const MeshTensor& tensor, const Layout& to, const at::Tensor& x, const at::Tensor& read,
                  Capture& capture) {
  capture.add_least(redistribution_route(tensor.layout(), to, tensor.rank()), item_bytes(to.dtype()));
  return capture.add_input({.given = x, .read = read, .is_here = tensor.local().defined()});
}

MeshTensor result_of(const MeshTensor& tensor, const PreparedPlan& prepared, const at::Tensor& out) {
  const bool is_inside = prepared.plan->to.mesh().position_of(tensor.rank()).has_value();
  const std::shared_ptr<const Layout> layout(prepared.plan, &prepared.plan->to);
  if (is_inside) return {out, out, layout, tensor.place()};
  return {at::Tensor(), out.requires_grad() ? out : at::Tensor(), layout, tensor.place()};
}

std::shared_ptr<const Adjoint> adjoint_of(const MeshTensor& tensor, const Request& request,
                                          const RedistributeOptions& options, uint64_t number) {
  return adjoint_of(*request.prepared, {.gradient = *request.gradient,
                                        .place = tensor.place(),
                                        .topology = topology_for(tensor, options.topology),
                                        .max_bytes = options.max_bytes,
                                        .number = number});
}

}  // namespace shardway
