#include "arbitrary_layouts.h"

#include <algorithm>
#include <numeric>

namespace shardway::testing {
namespace {

Placement any_partial(Dice& dice, Op op) { return partial(op == Op::sum && dice.one_in(3) ? Op::avg : op); }

// The outermost shard of a tensor dim gets any sizes.
void make_ragged(Dice& dice, const std::vector<int64_t>& shape, const Mesh& mesh, const ShardOrder& order,
                 std::vector<Placement>& placements) {
  for (size_t d = 0; d < shape.size(); ++d) {
    if (order[d].empty() || !dice.one_in(4)) continue;
    const auto m = static_cast<size_t>(order[d].front());
    placements[m].sizes = dice.parts_of(shape[d], mesh.shape()[m]);
  }
}

// A layout with the given Partials; the other mesh dims are shards or replicas.
Layout any_around(Dice& dice, const std::vector<int64_t>& shape, const Mesh& mesh,
                  std::vector<Placement> placements) {
  const auto ndim = static_cast<int64_t>(shape.size());
  ShardOrder order(shape.size());
  for (size_t m = 0; m < placements.size(); ++m) {
    if (placements[m].is_partial() || ndim == 0 || dice.one_in(3)) continue;
    placements[m] = shard(dice.between(int64_t{0}, ndim - 1));
    order[static_cast<size_t>(placements[m].dim)].push_back(static_cast<int64_t>(m));
  }
  for (auto& mesh_dims : order) dice.shuffle(mesh_dims);
  make_ragged(dice, shape, mesh, order, placements);
  return {shape, DType::f32, mesh, std::move(placements), std::move(order)};
}

std::vector<Placement> any_partials(Dice& dice, const Mesh& mesh) {
  const Op op = dice.any_of<Op>({Op::sum, Op::sum, Op::min, Op::max, Op::product});
  std::vector<Placement> placements(mesh.shape().size());
  for (Placement& placement : placements) {
    if (dice.one_in(3)) placement = any_partial(dice, op);
  }
  return placements;
}

Link any_link(Dice& dice) {
  return {.latency_us = dice.one_in(8) ? 0 : dice.between(0.01, 20.0),
          .gib_per_s = dice.between(0.001, 100.0)};
}

}  // namespace

std::string text_of(const LayoutPair& pair) { return to_string(pair.from) + "  →  " + to_string(pair.to); }

Mesh any_mesh(Dice& dice, int64_t most) {
  std::vector<int64_t> shape;
  int64_t size = 1;
  for (int64_t left = dice.between(int64_t{1}, int64_t{3}); left > 0; --left) {
    shape.push_back(dice.between(int64_t{1}, std::min<int64_t>(4, most / size)));
    size *= shape.back();
  }
  const int64_t world = dice.one_in(2) ? size : size + dice.between(int64_t{1}, int64_t{4});
  std::vector<int64_t> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (!dice.one_in(2)) dice.shuffle(ranks);
  ranks.resize(static_cast<size_t>(size));
  return {shape, ranks, {}};
}

std::vector<int64_t> any_tensor_shape(Dice& dice, int64_t longest) {
  std::vector<int64_t> shape(static_cast<size_t>(dice.one_in(12) ? 0 : dice.between(int64_t{1}, int64_t{3})));
  for (int64_t& length : shape) length = dice.one_in(25) ? 0 : dice.between(int64_t{1}, longest);
  return shape;
}

Layout any_layout(Dice& dice, const std::vector<int64_t>& shape, const Mesh& mesh, bool may_be_partial) {
  std::vector<Placement> placements(mesh.shape().size());
  if (may_be_partial && dice.one_in(2)) placements = any_partials(dice, mesh);
  return any_around(dice, shape, mesh, std::move(placements));
}

LayoutPair any_pair_on(Dice& dice, const std::vector<int64_t>& shape, const Mesh& mesh) {
  Layout from = any_layout(dice, shape, mesh, true);
  std::vector<Placement> kept(from.placements().size());
  for (size_t m = 0; m < kept.size(); ++m) {
    if (from.placements()[m].is_partial() && dice.one_in(3)) kept[m] = from.placements()[m];
  }
  Layout to = any_around(dice, shape, mesh, std::move(kept));
  return {std::move(from), std::move(to)};
}

LayoutPair any_pair(Dice& dice) {
  const std::vector<int64_t> shape = any_tensor_shape(dice);
  const Mesh mesh = any_mesh(dice);
  if (dice.one_in(2)) return any_pair_on(dice, shape, mesh);
  Mesh other = any_mesh(dice);
  if (dice.one_in(4)) {  // no rank in common
    std::vector<int64_t> ranks = other.ranks();
    for (int64_t& rank : ranks) rank += 1 + *std::max_element(mesh.ranks().begin(), mesh.ranks().end());
    other = Mesh(other.shape(), ranks, {});
  }
  Layout from = any_layout(dice, shape, mesh, true);
  Layout to = any_layout(dice, shape, other, false);
  return {std::move(from), std::move(to)};
}

Topology any_topology(Dice& dice, int64_t ranks) {
  Topology topology{.base_us = dice.one_in(6) ? 0 : dice.between(0.1, 20.0),
                    .within_host = any_link(dice),
                    .between_hosts = any_link(dice),
                    .source = "given"};
  for (int64_t dim = 0; dim < 3; ++dim) {
    if (dice.one_in(3)) topology.dims[std::to_string(dim)] = any_link(dice);
  }
  if (dice.one_in(2)) topology.ranks_per_host = dice.between(int64_t{1}, ranks);
  if (dice.one_in(4)) {
    for (int64_t rank = 0; rank < ranks; ++rank)
      topology.host_of_rank.push_back(dice.between(int64_t{0}, int64_t{2}));
  }
  if (dice.one_in(3)) topology.copy_gib_per_s = dice.between(0.01, 50.0);
  if (dice.one_in(3)) topology.reduce_gib_per_s = dice.between(0.01, 50.0);
  return topology;
}

std::vector<Layout> every_placement(const std::vector<int64_t>& shape, const Mesh& mesh, bool with_partial) {
  std::vector<Placement> choices{replicate()};
  for (size_t d = 0; d < shape.size(); ++d) choices.push_back(shard(static_cast<int64_t>(d)));
  if (with_partial) choices.push_back(partial());
  std::vector<std::vector<Placement>> all{{}};
  for (int64_t m = 0; m < mesh.ndim(); ++m) {
    std::vector<std::vector<Placement>> longer;
    for (const auto& placements : all) {
      for (const Placement& choice : choices) {
        longer.push_back(placements);
        longer.back().push_back(choice);
      }
    }
    all = std::move(longer);
  }
  std::vector<Layout> layouts;
  for (const auto& placements : all) layouts.emplace_back(shape, DType::f32, mesh, placements);
  return layouts;
}

}  // namespace shardway::testing
