#include "ops/operators/operators.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <string>

#include "ops/call/agreed_sizes.h"
#include "ops/call/arguments.h"
#include "ops/call/start.h"
#include "ops/operators/grad_names.h"
#include "shardway/collectives.h"

namespace shardway::operators {
namespace {

Group named_group(std::string_view name) { return Group::named(std::string(name)); }

// An operator must not return its input, as the functions do if there is only one rank.
at::Tensor apart_from(const at::Tensor& x, const at::Tensor& result) {
  return result.is_same(x) ? result.clone(at::MemoryFormat::Contiguous) : result;
}

// Returns what `read` returns. Throws c10::ValueError if `read` does not know the word.
template <class Read>
auto checked(const char* op, Read&& read) {
  try {
    return read();
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, op, ": ", error.what());
  }
}

Grad read_grad(const char* op, std::string_view word) {
  return checked(op, [&] { return grad_from_name(word); });
}

Op read_op(const char* op, std::string_view word) {
  return checked(op, [&] { return op_from_name(std::string(word)); });
}

at::Tensor as_tensor(const Sizes& sizes) { return at::tensor(sizes, at::kLong); }

at::Tensor all_gather_v_kernel(const at::Tensor& x, at::IntArrayRef sizes, int64_t dim, std::string_view grad,
                               std::string_view group) {
  const at::NoGradGuard guard;
  const AllGatherOptions options{
      .dim = dim, .sizes = sizes.vec(), .grad = read_grad("all_gather_v", grad), .group = named_group(group)};
  return apart_from(x, start_all_gather_v(x, options, Progress::by_caller).wait().tensor);
}

at::Tensor all_gather_v_sizes_kernel(const at::Tensor& x, int64_t dim, std::string_view grad,
                                     std::string_view group) {
  const at::NoGradGuard guard;
  return as_tensor(agreed_sizes(
      x, AllGatherOptions{.dim = dim, .grad = read_grad("all_gather_v", grad), .group = named_group(group)}));
}

at::Tensor reduce_scatter_v_kernel(const at::Tensor& x, at::OptionalIntArrayRef sizes, int64_t dim,
                                   std::string_view op, std::string_view group) {
  const at::NoGradGuard guard;
  ReduceScatterOptions options{
      .dim = dim, .op = read_op("reduce_scatter_v", op), .group = named_group(group)};
  if (sizes) options.sizes = sizes->vec();
  return apart_from(x, start_reduce_scatter_v(x, options, Progress::by_caller).wait());
}

at::Tensor all_to_all_v_kernel(const at::Tensor& x, at::IntArrayRef send_sizes, at::IntArrayRef recv_sizes,
                               int64_t dim, std::string_view group) {
  const at::NoGradGuard guard;
  const AllToAllOptions options{.dim = dim, .recv_sizes = recv_sizes.vec(), .group = named_group(group)};
  return apart_from(x, start_all_to_all_v(x, send_sizes.vec(), options, Progress::by_caller).wait().tensor);
}

at::Tensor all_to_all_v_sizes_kernel(const at::Tensor& x, at::IntArrayRef send_sizes, int64_t dim,
                                     std::string_view group) {
  const at::NoGradGuard guard;
  return as_tensor(
      agreed_sizes(x, send_sizes.vec(), AllToAllOptions{.dim = dim, .group = named_group(group)}));
}

at::Tensor all_reduce_kernel(const at::Tensor& x, std::string_view op, std::string_view grad,
                             std::string_view group) {
  const at::NoGradGuard guard;
  const AllReduceOptions options{
      .op = read_op("all_reduce", op), .grad = read_grad("all_reduce", grad), .group = named_group(group)};
  return apart_from(x, start_all_reduce(x, options, Progress::by_caller).wait());
}

at::Tensor broadcast_kernel(const at::Tensor& x, int64_t src, std::string_view group) {
  const at::NoGradGuard guard;
  return apart_from(
      x, start_broadcast(x, {.group_src = src, .group = named_group(group)}, Progress::by_caller).wait());
}

at::Tensor gather_v_kernel(const at::Tensor& x, at::IntArrayRef sizes, int64_t dst, int64_t dim,
                           std::string_view group) {
  const at::NoGradGuard guard;
  const GatherOptions options{
      .group_dst = dst, .dim = dim, .sizes = sizes.vec(), .group = named_group(group)};
  return apart_from(x, start_gather_v(x, options, Progress::by_caller).wait().tensor);
}

at::Tensor gather_v_sizes_kernel(const at::Tensor& x, int64_t dst, int64_t dim, std::string_view group) {
  const at::NoGradGuard guard;
  return as_tensor(agreed_sizes(x, GatherOptions{.group_dst = dst, .dim = dim, .group = named_group(group)}));
}

// src tells shape and dtype. If they do not match x, what follows was traced for the wrong shape or dtype, so
// this throws.
at::Tensor scatter_v_kernel(const at::Tensor& x, at::IntArrayRef sizes, int64_t src, int64_t dim,
                            std::string_view group) {
  const at::NoGradGuard guard;
  const Group members = named_group(group);
  const ScatterOptions options{.group_src = src, .dim = dim, .sizes = sizes.vec(), .group = members};
  const at::Tensor result = start_scatter_v(x, options, Progress::by_caller).wait();
  std::vector<int64_t> expected = x.sizes().vec();
  expected.at(static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))) =
      sizes.at(static_cast<size_t>(members.rank()));
  if (result.sizes() != at::IntArrayRef(expected) || result.scalar_type() != x.scalar_type()) {
    raise("scatter_v",
          c10::str("src sent a ", dtype_name(result.scalar_type()), " tensor of shape ", result.sizes(),
                   ", but x and sizes here say ", dtype_name(x.scalar_type()), " of shape ",
                   at::IntArrayRef(expected)),
          members.rank());
  }
  return apart_from(x, result);
}

at::Tensor scatter_v_sizes_kernel(const at::Tensor& x, at::OptionalIntArrayRef sizes, int64_t src,
                                  int64_t dim, std::string_view group) {
  const at::NoGradGuard guard;
  ScatterOptions options{.group_src = src, .dim = dim, .group = named_group(group)};
  if (sizes) options.sizes = sizes->vec();
  return as_tensor(agreed_sizes(x, options));
}

at::Tensor gather_sizes_kernel(const at::Tensor& x, int64_t dim, std::string_view group) {
  return as_tensor(agreed_sizes(x, GatherSizesOptions{.dim = dim, .group = named_group(group)}));
}

}  // namespace

TORCH_LIBRARY(shardway, library) {
  library.set_python_module("shardway._operators");
  library.def("all_gather_v(Tensor x, SymInt[] sizes, int dim, str grad, str group) -> Tensor");
  library.def("all_gather_v_sizes(Tensor x, int dim, str grad, str group) -> Tensor");
  library.def("reduce_scatter_v(Tensor x, SymInt[]? sizes, int dim, str op, str group) -> Tensor");
  library.def(
      "all_to_all_v(Tensor x, SymInt[] send_sizes, SymInt[] recv_sizes, int dim, str group) -> Tensor");
  library.def("all_to_all_v_sizes(Tensor x, SymInt[] send_sizes, int dim, str group) -> Tensor");
  library.def("all_reduce(Tensor x, str op, str grad, str group) -> Tensor");
  library.def("broadcast(Tensor x, int src, str group) -> Tensor");
  library.def("gather_v(Tensor x, SymInt[] sizes, int dst, int dim, str group) -> Tensor");
  library.def("gather_v_sizes(Tensor x, int dst, int dim, str group) -> Tensor");
  library.def("scatter_v(Tensor x, SymInt[] sizes, int src, int dim, str group) -> Tensor");
  library.def("scatter_v_sizes(Tensor x, SymInt[]? sizes, int src, int dim, str group) -> Tensor");
  library.def("gather_sizes(Tensor x, int dim, str group) -> Tensor");
}

TORCH_LIBRARY_IMPL(shardway, CompositeExplicitAutograd, library) {
  library.impl("all_gather_v", &all_gather_v_kernel);
  library.impl("all_gather_v_sizes", &all_gather_v_sizes_kernel);
  library.impl("reduce_scatter_v", &reduce_scatter_v_kernel);
  library.impl("all_to_all_v", &all_to_all_v_kernel);
  library.impl("all_to_all_v_sizes", &all_to_all_v_sizes_kernel);
  library.impl("all_reduce", &all_reduce_kernel);
  library.impl("broadcast", &broadcast_kernel);
  library.impl("gather_v", &gather_v_kernel);
  library.impl("gather_v_sizes", &gather_v_sizes_kernel);
  library.impl("scatter_v", &scatter_v_kernel);
  library.impl("scatter_v_sizes", &scatter_v_sizes_kernel);
  library.impl("gather_sizes", &gather_sizes_kernel);
}

}  // namespace shardway::operators
