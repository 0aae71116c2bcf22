// The gradients of the operators: operators again, so that a tracer sees them.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <functional>
#include <string>
#include <vector>

#include "ops/call/arguments.h"
#include "ops/operators/operators.h"
#include "ops/operators/operators_sizes.h"

namespace shardway::operators {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;
using Map = std::function<at::Tensor(const at::Tensor&)>;

struct SavedMap : torch::CustomClassHolder {
  explicit SavedMap(Map m) : map(std::move(m)) {}
  Map map;
};

// Not RouteFunction: in a trace, sizes may be symbols, and no route can be made from symbols. The gradient of
// an operator is an operator again.
struct OperatorFunction : torch::autograd::Function<OperatorFunction> {
  static Variable forward(AutogradContext* ctx, const Variable& x, const Map& op, const Map& adjoint) {
    ctx->saved_data["adjoint"] = c10::IValue::make_capsule(c10::make_intrusive<SavedMap>(adjoint));
    const at::AutoDispatchBelowADInplaceOrView guard;
    return op(x);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = c10::static_intrusive_pointer_cast<SavedMap>(ctx->saved_data["adjoint"].toCapsule());
    return {saved->map(grads[0]), Variable(), Variable()};
  }
};

at::Tensor all_gathered(const at::Tensor& x, SymSizes sizes, int64_t dim, std::string_view grad,
                        std::string_view group) {
  static const auto op = found<AllGatherV>("shardway::all_gather_v");
  return op.call(x, sizes, dim, grad, group);
}

at::Tensor reduce_scattered(const at::Tensor& x, OptionalSymSizes sizes, int64_t dim, std::string_view op,
                            std::string_view group) {
  static const auto handle = found<ReduceScatterV>("shardway::reduce_scatter_v");
  return handle.call(x, sizes, dim, op, group);
}

at::Tensor exchanged(const at::Tensor& x, SymSizes send, SymSizes recv, int64_t dim, std::string_view group) {
  static const auto op = found<AllToAllV>("shardway::all_to_all_v");
  return op.call(x, send, recv, dim, group);
}

at::Tensor all_reduced(const at::Tensor& x, std::string_view op, std::string_view grad,
                       std::string_view group) {
  static const auto handle = found<AllReduceOperator>("shardway::all_reduce");
  return handle.call(x, op, grad, group);
}

at::Tensor gathered(const at::Tensor& x, SymSizes sizes, int64_t dst, int64_t dim, std::string_view group) {
  static const auto op = found<GatherV>("shardway::gather_v");
  return op.call(x, sizes, dst, dim, group);
}

at::Tensor scattered(const at::Tensor& x, SymSizes sizes, int64_t src, int64_t dim, std::string_view group) {
  static const auto op = found<ScatterV>("shardway::scatter_v");
  return op.call(x, sizes, src, dim, group);
}

// This rank's block of a tensor cut by `sizes`.
at::Tensor own_block(const at::Tensor& x, SymSizes sizes, int64_t dim, size_t rank) {
  return x.narrow_symint(dim, total(sizes.slice(0, rank)), sizes[rank]);
}

void check_adjoint(const at::Tensor& x, const char* name, std::string_view op, std::string_view group) {
  const bool is_linear = op == "sum" || op == "avg" || op == "mean";
  if (is_linear || !(x.requires_grad() && at::GradMode::is_enabled())) return;
  raise(name, c10::str("op='", op, "' has no gradient, but x requires grad: pass x.detach()"),
        static_cast<int64_t>(place_in(group).rank));
}

bool is_mean(std::string_view op) { return op == "avg" || op == "mean"; }

at::Tensor all_gather_v_autograd(const at::Tensor& x, SymSizes sizes, int64_t dim, std::string_view grad,
                                 std::string_view group) {
  const auto run = [=](const at::Tensor& in) { return all_gathered(in, sizes, dim, grad, group); };
  const auto adjoint = [dim, rows = sizes.vec(), mode = std::string(grad),
                        name = std::string(group)](const at::Tensor& g) {
    if (mode == "local") return own_block(g, rows, dim, place_in(name).rank);
    return reduce_scattered(g, SymSizes(rows), dim, mode == "mean" ? "avg" : "sum", name);
  };
  return OperatorFunction::apply(x, Map(run), Map(adjoint));
}

at::Tensor reduce_scatter_v_autograd(const at::Tensor& x, OptionalSymSizes sizes, int64_t dim,
                                     std::string_view op, std::string_view group) {
  check_adjoint(x, "reduce_scatter_v", op, group);
  const SizePlace place = place_in(group);
  const auto run = [=](const at::Tensor& in) { return reduce_scattered(in, sizes, dim, op, group); };
  const auto adjoint = [dim, divides = is_mean(op), ranks = static_cast<int64_t>(place.ranks),
                        rows = sizes_or_chunks(x, sizes, dim, place),
                        name = std::string(group)](const at::Tensor& g) {
    return all_gathered(divides ? g / ranks : g, rows, dim, "sum", name);
  };
  return OperatorFunction::apply(x, Map(run), Map(adjoint));
}

at::Tensor all_to_all_v_autograd(const at::Tensor& x, SymSizes send, SymSizes recv, int64_t dim,
                                 std::string_view group) {
  const auto run = [=](const at::Tensor& in) { return exchanged(in, send, recv, dim, group); };
  const auto adjoint = [dim, sent = send.vec(), received = recv.vec(), name = std::string(group)](
                           const at::Tensor& g) { return exchanged(g, received, sent, dim, name); };
  return OperatorFunction::apply(x, Map(run), Map(adjoint));
}

at::Tensor all_reduce_autograd(const at::Tensor& x, std::string_view op, std::string_view grad,
                               std::string_view group) {
  check_adjoint(x, "all_reduce", op, group);
  const auto run = [=](const at::Tensor& in) { return all_reduced(in, op, grad, group); };
  const auto adjoint = [divides = is_mean(op), mode = std::string(grad),
                        name = std::string(group)](const at::Tensor& g) {
    const auto ranks = static_cast<int64_t>(place_in(name).ranks);
    at::Tensor scaled = divides ? g / ranks : g;
    if (mode == "local") return scaled;
    return all_reduced(scaled, mode == "mean" ? "avg" : "sum", "sum", name);
  };
  return OperatorFunction::apply(x, Map(run), Map(adjoint));
}

// Returns the sum on src and zeros on the other ranks. The zeros stay tied to the reduction, which every rank
// runs.
at::Tensor summed_on(const at::Tensor& g, int64_t src, const std::string& group) {
  const SizePlace place = place_in(group);
  std::vector<c10::SymInt> sizes(place.ranks, c10::SymInt(0));
  sizes.at(static_cast<size_t>(src)) = g.sym_numel();
  at::Tensor part = reduce_scattered(g.reshape(-1), SymSizes(sizes), 0, "sum", group);
  if (place.rank != static_cast<size_t>(src)) {
    part = at::constant_pad_nd_symint(part, std::vector<c10::SymInt>{c10::SymInt(0), g.sym_numel()}, 0);
  }
  return part.view_symint(g.sym_sizes());
}

at::Tensor broadcast_autograd(const at::Tensor& x, int64_t src, std::string_view group) {
  const auto run = [=](const at::Tensor& in) {
    static const auto op = found<Broadcast>("shardway::broadcast");
    return op.call(in, src, group);
  };
  const auto adjoint = [src, name = std::string(group)](const at::Tensor& g) {
    return summed_on(g, src, name);
  };
  return OperatorFunction::apply(x, Map(run), Map(adjoint));
}

at::Tensor gather_v_autograd(const at::Tensor& x, SymSizes sizes, int64_t dst, int64_t dim,
                             std::string_view group) {
  const auto run = [=](const at::Tensor& in) { return gathered(in, sizes, dst, dim, group); };
  const auto adjoint = [dst, dim, rows = sizes.vec(), name = std::string(group)](const at::Tensor& g) {
    return scattered(g, rows, dst, dim, name);
  };
  return OperatorFunction::apply(x, Map(run), Map(adjoint));
}

at::Tensor scatter_v_autograd(const at::Tensor& x, SymSizes sizes, int64_t src, int64_t dim,
                              std::string_view group) {
  const auto run = [=](const at::Tensor& in) { return scattered(in, sizes, src, dim, group); };
  const auto adjoint = [src, dim, rows = sizes.vec(), name = std::string(group)](const at::Tensor& g) {
    return gathered(g, rows, src, dim, name);
  };
  return OperatorFunction::apply(x, Map(run), Map(adjoint));
}

}  // namespace

TORCH_LIBRARY_IMPL(shardway, Autograd, library) {
  library.impl("all_gather_v", &all_gather_v_autograd);
  library.impl("reduce_scatter_v", &reduce_scatter_v_autograd);
  library.impl("all_to_all_v", &all_to_all_v_autograd);
  library.impl("all_reduce", &all_reduce_autograd);
  library.impl("broadcast", &broadcast_autograd);
  library.impl("gather_v", &gather_v_autograd);
  library.impl("scatter_v", &scatter_v_autograd);
}

}  // namespace shardway::operators
