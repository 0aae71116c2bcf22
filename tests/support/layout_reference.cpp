#include "layout_reference.h"

#include <algorithm>
#include <numeric>

namespace shardway::testing {
namespace {

// Averages are divided again and again, by up to 2^4, 3^3 and 5^2 ranks in all.
constexpr int64_t kDivisible = 16 * 27 * 25;

Dense any_values(const std::vector<int64_t>& shape, Op op, Dice& dice) {
  Dense dense = Dense::filled(shape, 0);
  for (int64_t& value : dense.values) {
    value = op == Op::product ? dice.any_of<int64_t>({-2, -1, 1, 1, 2, 3})
                              : dice.between(int64_t{-999}, int64_t{999}) * kDivisible;
  }
  return dense;
}

int64_t folded(Op op, int64_t a, int64_t b) {
  switch (op) {
    case Op::sum:
    case Op::avg:
      return a + b;
    case Op::min:
      return std::min(a, b);
    case Op::max:
      return std::max(a, b);
    case Op::product:
      return a * b;
  }
  return 0;
}

bool is_kept(const Layout& from, const Layout& to, int64_t mesh_dim) {
  const auto m = static_cast<size_t>(mesh_dim);
  return from.mesh() == to.mesh() && to.placements()[m].is_partial();
}

Box box_of(const std::vector<std::vector<int64_t>>& held) {
  Box box;
  for (const auto& indices : held) {
    box.offset.push_back(indices.empty() ? 0 : indices.front());
    box.extent.push_back(static_cast<int64_t>(indices.size()));
  }
  return box;
}

Dense part_of(const Dense& whole, const Box& box) {
  Dense part = Dense::filled(box.extent, 0);
  const std::vector<Index> indices = indices_of(box);
  for (size_t i = 0; i < indices.size(); ++i) part.values[i] = whole.at(indices[i]);
  return part;
}

}  // namespace

Coordinate coordinate_of(const Mesh& mesh, int64_t position) {
  Coordinate coordinate;
  int64_t block = std::accumulate(mesh.shape().begin(), mesh.shape().end(), int64_t{1}, std::multiplies<>());
  for (const int64_t length : mesh.shape()) {
    block /= length;
    coordinate.push_back(position / block);
    position %= block;
  }
  return coordinate;
}

std::vector<int64_t> torch_chunk(const std::vector<int64_t>& list, int64_t parts, int64_t index) {
  const auto length = static_cast<int64_t>(list.size());
  const int64_t piece = length / parts + (length % parts == 0 ? 0 : 1);
  const int64_t begin = std::min(length, index * piece);
  const int64_t end = std::min(length, (index + 1) * piece);
  return {list.begin() + begin, list.begin() + end};
}

std::vector<std::vector<int64_t>> held_indices(const Layout& layout, int64_t position) {
  const Coordinate coordinate = coordinate_of(layout.mesh(), position);
  std::vector<std::vector<int64_t>> held;
  for (size_t d = 0; d < layout.shape().size(); ++d) {
    std::vector<int64_t> list(static_cast<size_t>(layout.shape()[d]));
    std::iota(list.begin(), list.end(), 0);
    for (const int64_t mesh_dim : layout.order()[d]) {
      const auto m = static_cast<size_t>(mesh_dim);
      const std::vector<int64_t>& sizes = layout.placements()[m].sizes;
      if (sizes.empty()) {
        list = torch_chunk(list, layout.mesh().shape()[m], coordinate[m]);
      } else {
        const auto begin =
            list.begin() + std::accumulate(sizes.begin(), sizes.begin() + coordinate[m], int64_t{0});
        list = std::vector(begin, begin + sizes[static_cast<size_t>(coordinate[m])]);
      }
    }
    held.push_back(std::move(list));
  }
  return held;
}

Box reference_box(const Layout& layout, int64_t position) { return box_of(held_indices(layout, position)); }

std::vector<Box> reference_boxes(const Layout& layout) {
  std::vector<Box> boxes;
  for (int64_t position = 0; position < layout.mesh().size(); ++position)
    boxes.push_back(reference_box(layout, position));
  return boxes;
}

Addends any_addends(const Layout& layout, Dice& dice) {
  Addends addends;
  Op op = Op::sum;
  for (size_t m = 0; m < layout.placements().size(); ++m) {
    if (!layout.placements()[m].is_partial()) continue;
    addends.mesh_dims.push_back(static_cast<int64_t>(m));
    op = layout.placements()[m].op;
  }
  for (int64_t position = 0; position < layout.mesh().size(); ++position) {
    const Coordinate coordinate = coordinate_of(layout.mesh(), position);
    Coordinate key;
    for (const int64_t m : addends.mesh_dims) key.push_back(coordinate[static_cast<size_t>(m)]);
    if (!addends.by_coordinate.contains(key))
      addends.by_coordinate[key] = any_values(layout.shape(), op, dice);
  }
  return addends;
}

Addends combined(const Addends& addends, const Layout& from, const Layout& to) {
  Addends result;
  int64_t divisor = 1;
  Op op = Op::sum;
  for (const int64_t m : addends.mesh_dims) {
    if (is_kept(from, to, m)) {
      result.mesh_dims.push_back(m);
      continue;
    }
    const Op own = from.placements()[static_cast<size_t>(m)].op;
    if (own == Op::avg) divisor *= from.mesh().shape()[static_cast<size_t>(m)];
    if (own != Op::avg) op = own;
  }
  for (const auto& [coordinate, dense] : addends.by_coordinate) {
    Coordinate key;
    for (size_t i = 0; i < coordinate.size(); ++i) {
      if (is_kept(from, to, addends.mesh_dims[i])) key.push_back(coordinate[i]);
    }
    const auto [place, is_first] = result.by_coordinate.try_emplace(key, dense);
    if (is_first) continue;
    for (size_t i = 0; i < dense.values.size(); ++i)
      place->second.values[i] = folded(op, place->second.values[i], dense.values[i]);
  }
  for (auto& [coordinate, dense] : result.by_coordinate) {
    for (int64_t& value : dense.values) value /= divisor;
  }
  return result;
}

std::vector<Dense> locals_of(const Layout& layout, const Addends& addends, int64_t ranks) {
  const Dense nothing = Dense::filled(std::vector<int64_t>(layout.shape().size(), 0), kUntouched);
  std::vector<Dense> locals(static_cast<size_t>(ranks), nothing);
  for (int64_t position = 0; position < layout.mesh().size(); ++position) {
    const Coordinate coordinate = coordinate_of(layout.mesh(), position);
    Coordinate key;
    for (const int64_t m : addends.mesh_dims) key.push_back(coordinate[static_cast<size_t>(m)]);
    const auto rank = static_cast<size_t>(layout.mesh().ranks()[static_cast<size_t>(position)]);
    locals[rank] = part_of(addends.by_coordinate.at(key), reference_box(layout, position));
  }
  return locals;
}

int64_t ranks_of(const Layout& from, const Layout& to) {
  int64_t largest = 0;
  for (const Layout* layout : {&from, &to}) {
    for (const int64_t rank : layout->mesh().ranks()) largest = std::max(largest, rank);
  }
  return largest + 1;
}

std::vector<Route> routes_between(const Layout& from, const Layout& to) {
  std::vector<Route> routes;
  for (int64_t rank = 0; rank < ranks_of(from, to); ++rank)
    routes.push_back(redistribution_route(from, to, rank));
  return routes;
}

std::vector<Dense> exchanged(const Layout& from, const Layout& to, const std::vector<Dense>& locals) {
  std::vector<Dense> inputs = locals;
  const auto ranks = static_cast<size_t>(ranks_of(from, to));
  inputs.resize(ranks, Dense::filled(std::vector<int64_t>(from.shape().size(), 0), kUntouched));
  std::vector<Dense> outputs;
  for (Outcome& outcome : simulate(routes_between(from, to), inputs))
    outputs.push_back(std::move(outcome.output));
  return outputs;
}

}  // namespace shardway::testing
