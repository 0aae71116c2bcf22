#include "shardway/layout.h"

#include <algorithm>
#include <stdexcept>

#include "plan/geometry/cuts.h"
#include "plan/geometry/number_text.h"

namespace shardway {
namespace {

// Volumes are added up as doubles. Up to this limit they hold integers exactly.
constexpr int64_t kMostElements = int64_t{1} << 52;

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument("layout: " + why); }

std::string at_mesh_dim(size_t mesh_dim) { return " (mesh dim " + std::to_string(mesh_dim) + ")"; }

void check_shape(const std::vector<int64_t>& shape, DType dtype) {
  int64_t bytes = item_bytes(dtype);
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] < 0) {
      refuse("dim " + std::to_string(dim) + " has length " + std::to_string(shape[dim]) +
             ", which is negative");
    }
    const int64_t length = std::max<int64_t>(1, shape[dim]);
    if (length > kMostElements / bytes) {
      refuse("shape " + join(shape, "x") + " of " + name_of(dtype) + " is more than 2^52 bytes");
    }
    bytes *= length;
  }
}

void check_shard(const Placement& placement, size_t mesh_dim, const Mesh& mesh,
                 const std::vector<int64_t>& shape) {
  const auto ndim = static_cast<int64_t>(shape.size());
  if (placement.dim < 0 || placement.dim >= ndim) {
    refuse(to_string(placement) + at_mesh_dim(mesh_dim) + " splits dim " + std::to_string(placement.dim) +
           " of a " + std::to_string(ndim) + "-d tensor");
  }
  if (!placement.is_ragged()) return;
  const int64_t ranks = mesh.shape()[mesh_dim];
  if (static_cast<int64_t>(placement.sizes.size()) != ranks) {
    refuse(to_string(placement) + at_mesh_dim(mesh_dim) + " has " + std::to_string(placement.sizes.size()) +
           " sizes for " + std::to_string(ranks) + " ranks");
  }
  int64_t total = 0;
  for (const int64_t size : placement.sizes) {
    if (size < 0 || size > kMostElements) {
      refuse(to_string(placement) + at_mesh_dim(mesh_dim) + " has a size of " + std::to_string(size));
    }
    total += size;
  }
  const int64_t length = shape[static_cast<size_t>(placement.dim)];
  if (total != length) {
    refuse(to_string(placement) + at_mesh_dim(mesh_dim) + ": the sizes add up to " + std::to_string(total) +
           ", but dim " + std::to_string(placement.dim) + " has length " + std::to_string(length));
  }
}

void check_partials(const std::vector<Placement>& placements, DType dtype) {
  std::optional<Op> first;
  const auto adds = [](Op op) { return op == Op::sum || op == Op::avg; };
  for (size_t m = 0; m < placements.size(); ++m) {
    if (!placements[m].is_partial()) continue;
    const Op op = placements[m].op;
    if (op == Op::avg && is_integral(dtype)) {
      refuse("P(avg)" + at_mesh_dim(m) + " of " + name_of(dtype) +
             ": an average of integers is not an integer");
    }
    if (first && *first != op && !(adds(*first) && adds(op))) {
      refuse(std::string("P(") + name_of(*first) + ") and P(" + name_of(op) +
             ") in one layout: only sum and avg mix");
    }
    first = first.value_or(op);
  }
}

ShardOrder ascending_order(const std::vector<Placement>& placements, size_t ndim) {
  ShardOrder order(ndim);
  for (size_t m = 0; m < placements.size(); ++m) {
    if (placements[m].is_shard())
      order[static_cast<size_t>(placements[m].dim)].push_back(static_cast<int64_t>(m));
  }
  return order;
}

void check_order(const ShardOrder& order, const ShardOrder& ascending) {
  if (order.size() != ascending.size()) {
    refuse("the shard order has " + std::to_string(order.size()) + " entries for a " +
           std::to_string(ascending.size()) + "-d tensor");
  }
  for (size_t dim = 0; dim < order.size(); ++dim) {
    std::vector<int64_t> sorted = order[dim];
    std::sort(sorted.begin(), sorted.end());
    if (sorted != ascending[dim]) {
      refuse("the shard order of dim " + std::to_string(dim) + " names the mesh dims [" +
             join(order[dim], ",") + "], but [" + join(ascending[dim], ",") + "] shard it");
    }
  }
}

void check_ragged_is_outermost(const ShardOrder& order, const std::vector<Placement>& placements) {
  for (size_t dim = 0; dim < order.size(); ++dim) {
    for (size_t i = 1; i < order[dim].size(); ++i) {
      const auto mesh_dim = static_cast<size_t>(order[dim][i]);
      if (!placements[mesh_dim].is_ragged()) continue;
      refuse(to_string(placements[mesh_dim]) + at_mesh_dim(mesh_dim) + " is ragged and splits dim " +
             std::to_string(dim) + " inside another shard: a ragged shard is the outermost of its dim");
    }
  }
}

struct Hash {
  size_t value = 0x9e3779b97f4a7c15U;

  void add(size_t number) { value = (value ^ number) * 0x100000001b3U + (value >> 29U); }
  void add(const std::vector<int64_t>& numbers) {
    add(numbers.size());
    for (const int64_t number : numbers) add(static_cast<size_t>(number));
  }
};

size_t hash_of(const Layout& layout) {
  Hash hash;
  hash.add(static_cast<size_t>(layout.dtype()));
  hash.add(layout.shape());
  hash.add(layout.mesh().shape());
  hash.add(layout.mesh().ranks());
  for (const Placement& placement : layout.placements()) {
    hash.add(static_cast<size_t>(placement.kind));
    hash.add(static_cast<size_t>(placement.dim));
    hash.add(static_cast<size_t>(placement.op));
    hash.add(placement.sizes);
  }
  for (const auto& mesh_dims : layout.order()) hash.add(mesh_dims);
  return hash.value;
}

}  // namespace

Placement replicate() { return {}; }

Placement shard(int64_t dim, std::vector<int64_t> sizes) {
  return {.kind = Placement::Kind::shard, .dim = dim, .sizes = std::move(sizes)};
}

Placement partial(Op op) { return {.kind = Placement::Kind::partial, .op = op}; }

Layout::Layout(std::vector<int64_t> shape, DType dtype, Mesh mesh, std::vector<Placement> placements,
               ShardOrder order)
    : shape_(std::move(shape)),
      dtype_(dtype),
      mesh_(std::move(mesh)),
      placements_(std::move(placements)),
      order_(std::move(order)) {
  check_shape(shape_, dtype_);
  if (static_cast<int64_t>(placements_.size()) != mesh_.ndim()) {
    refuse(std::to_string(placements_.size()) + " placements for a " + std::to_string(mesh_.ndim()) +
           "-d mesh (" + to_string(mesh_) + ")");
  }
  for (size_t m = 0; m < placements_.size(); ++m) {
    if (placements_[m].is_shard()) check_shard(placements_[m], m, mesh_, shape_);
  }
  check_partials(placements_, dtype_);
  const ShardOrder ascending = ascending_order(placements_, shape_.size());
  if (order_.empty()) order_ = ascending;
  check_order(order_, ascending);
  check_ragged_is_outermost(order_, placements_);
  hash_ = hash_of(*this);
}

bool Layout::has_default_order() const {
  return std::all_of(order_.begin(), order_.end(), [](const auto& mesh_dims) {
    return std::is_sorted(mesh_dims.begin(), mesh_dims.end());
  });
}

Box Layout::box_at(int64_t position) const {
  const std::vector<int64_t> coordinate = mesh_.coordinate_at(position);
  Box box;
  for (int64_t dim = 0; dim < ndim(); ++dim) {
    const Interval interval = interval_at(shape_[static_cast<size_t>(dim)], cuts_of(*this, dim), coordinate);
    box.offset.push_back(interval.begin);
    box.extent.push_back(interval.length());
  }
  return box;
}

Layout Layout::with(std::vector<Placement> placements, ShardOrder order) const {
  return with(mesh_, std::move(placements), std::move(order));
}

Layout Layout::with(Mesh mesh, std::vector<Placement> placements, ShardOrder order) const {
  return {shape_, dtype_, std::move(mesh), std::move(placements), std::move(order)};
}

bool Layout::operator==(const Layout& other) const {
  if (this == &other) return true;
  return hash_ == other.hash_ && dtype_ == other.dtype_ && shape_ == other.shape_ && mesh_ == other.mesh_ &&
         placements_ == other.placements_ && order_ == other.order_;
}

std::string to_string(const Placement& placement) {
  if (placement.is_replicate()) return "R";
  if (placement.is_partial()) {
    return placement.op == Op::sum ? "P" : std::string("P(") + name_of(placement.op) + ")";
  }
  const std::string text = "S" + std::to_string(placement.dim);
  return placement.is_ragged() ? text + "[" + join(placement.sizes, ",") + "]" : text;
}

std::string placements_text(const Layout& layout) {
  std::string text;
  for (size_t m = 0; m < layout.placements().size(); ++m) {
    const Placement& placement = layout.placements()[m];
    text += (m == 0 ? "" : ",") + to_string(placement);
    if (!placement.is_shard()) continue;
    const auto& mesh_dims = layout.order()[static_cast<size_t>(placement.dim)];
    if (std::is_sorted(mesh_dims.begin(), mesh_dims.end())) continue;
    const auto place =
        std::find(mesh_dims.begin(), mesh_dims.end(), static_cast<int64_t>(m)) - mesh_dims.begin();
    text += "." + std::to_string(place);
  }
  return text;
}

std::string to_string(const Layout& layout) {
  return std::string(name_of(layout.dtype())) + "[" + join(layout.shape(), ",") + "] on " +
         to_string(layout.mesh()) + ": " + placements_text(layout);
}

}  // namespace shardway
