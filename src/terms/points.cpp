#include "terms/points.h"

#include <array>
#include <charconv>
#include <sstream>

namespace shardway::wire {
namespace {

// Whether ranks may bring different extents along dim `d`: along the call's dim they may, unless each brings
// the whole tensor.
bool may_differ(const BlockView& block, int64_t d) {
  switch (block.collective()) {
    case Collective::reduce_scatter_v:
    case Collective::all_reduce:
    case Collective::broadcast:
    case Collective::mesh_broadcast:
    case Collective::dist_sparse_all_reduce:
      return false;
    default:
      return d == block.header().dim;
  }
}

// The shape, with a star where the ranks may differ.
std::string shape_text(const BlockView& block) {
  std::ostringstream text;
  text << '(';
  for (int64_t d = 0; d < block.header().ndim; ++d) {
    text << (d == 0 ? "" : ", ");
    if (may_differ(block, d)) {
      text << '*';
    } else {
      text << block.shape()[d];
    }
  }
  text << ')';
  return text.str();
}

// As many digits as it takes to tell two factors apart.
std::string factor_text(double factor) {
  std::array<char, 32> text = {};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), factor).ptr};
}

}  // namespace

const char* name_of_point(Point point, Collective collective) {
  if (collective == Collective::dist_sparse_all_reduce && point == Point::dim) return "the sparse dims";
  constexpr std::array kNames = {"dtype", "device", "number of dims", "dim",
                                 "shape", "op",     "grad",           "the factor"};
  return kNames.at(static_cast<size_t>(point));
}

bool is_of_call(Point point) { return point == Point::op || point == Point::grad; }

std::string text_of(Point point, const BlockView& block, const Kinds& kinds) {
  constexpr std::array kGradNames = {"sum", "mean", "local"};
  const BlockHeader& header = block.header();
  switch (point) {
    case Point::dtype:
      return kinds.dtype_name(header.dtype);
    case Point::device:
      return kinds.device_name(header.device);
    case Point::ndim:
      return std::to_string(header.ndim);
    case Point::dim:
      return std::to_string(header.dim);
    case Point::shape:
      return shape_text(block);
    case Point::op:
      return kOpNames.at(header.op);
    case Point::grad:
      return kGradNames.at(header.grad);
    case Point::factor:
      return factor_text(header.factor);
  }
  return {};
}

bool same_points(const BlockView& a, const BlockView& b) {
  const BlockHeader& x = a.header();
  const BlockHeader& y = b.header();
  if (x.dtype != y.dtype || x.device != y.device || x.ndim != y.ndim || x.dim != y.dim || x.op != y.op ||
      x.grad != y.grad || x.factor != y.factor) {
    return false;
  }
  for (int64_t d = 0; d < x.ndim; ++d) {
    if (!may_differ(a, d) && a.shape()[d] != b.shape()[d]) return false;
  }
  return true;
}

}  // namespace shardway::wire
