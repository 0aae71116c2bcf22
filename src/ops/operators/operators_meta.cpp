// The results of the operators without data.
#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "ops/operators/operators.h"
#include "ops/operators/operators_sizes.h"

namespace shardway::operators {
namespace {

at::Tensor resized(const at::Tensor& x, int64_t dim, const c10::SymInt& size) {
  std::vector<c10::SymInt> shape = x.sym_sizes().vec();
  shape.at(static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))) = size;
  return x.new_empty_symint(shape);
}

at::Tensor all_gather_v_shape(const at::Tensor& x, SymSizes sizes, int64_t dim, std::string_view,
                              std::string_view) {
  return resized(x, dim, total(sizes));
}

at::Tensor reduce_scatter_v_shape(const at::Tensor& x, OptionalSymSizes sizes, int64_t dim, std::string_view,
                                  std::string_view group) {
  const SizePlace place = place_in(group);
  return resized(x, dim, sizes_or_chunks(x, sizes, dim, place).at(place.rank));
}

at::Tensor all_to_all_v_shape(const at::Tensor& x, SymSizes, SymSizes recv_sizes, int64_t dim,
                              std::string_view) {
  return resized(x, dim, total(recv_sizes));
}

at::Tensor all_reduce_shape(const at::Tensor& x, std::string_view, std::string_view, std::string_view) {
  return x.new_empty_symint(x.sym_sizes());
}

at::Tensor broadcast_shape(const at::Tensor& x, int64_t, std::string_view) {
  return x.new_empty_symint(x.sym_sizes());
}

at::Tensor gather_v_shape(const at::Tensor& x, SymSizes sizes, int64_t dst, int64_t dim,
                          std::string_view group) {
  const bool is_dst = place_in(group).rank == static_cast<size_t>(dst);
  return resized(x, dim, is_dst ? total(sizes) : c10::SymInt(0));
}

at::Tensor scatter_v_shape(const at::Tensor& x, SymSizes sizes, int64_t, int64_t dim,
                           std::string_view group) {
  return resized(x, dim, sizes.vec().at(place_in(group).rank));
}

}  // namespace

TORCH_LIBRARY_IMPL(shardway, Meta, library) {
  library.impl("all_gather_v", &all_gather_v_shape);
  library.impl("reduce_scatter_v", &reduce_scatter_v_shape);
  library.impl("all_to_all_v", &all_to_all_v_shape);
  library.impl("all_reduce", &all_reduce_shape);
  library.impl("broadcast", &broadcast_shape);
  library.impl("gather_v", &gather_v_shape);
  library.impl("scatter_v", &scatter_v_shape);
}

}  // namespace shardway::operators
