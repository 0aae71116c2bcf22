// The direct exchange between two layouts, as one rank's part of it.
#include <algorithm>
#include <stdexcept>

#include "plan/cuts.h"
#include "plan/passage.h"
#include "shardway/layout.h"

namespace shardway {
namespace {

using Coordinate = std::vector<int64_t>;

int64_t position_at(const Mesh& mesh, const Coordinate& coordinate) {
  int64_t position = 0;
  for (size_t d = 0; d < coordinate.size(); ++d) position = position * mesh.shape()[d] + coordinate[d];
  return position;
}

// The parts of the other layout that overlap this rank's box, per tensor dim.
struct Overlaps {
  std::vector<std::vector<Cut>> cuts = {};
  std::vector<std::vector<OverlappingPart>> parts = {};
};

Overlaps overlaps_with(const Layout& other, const Box& mine, const Pins& pins) {
  Overlaps result;
  for (int64_t dim = 0; dim < other.ndim(); ++dim) {
    const auto d = static_cast<size_t>(dim);
    result.cuts.push_back(cuts_of(other, dim));
    result.parts.push_back(overlapping_parts(other.shape()[d], result.cuts.back(),
                                             {mine.offset[d], mine.offset[d] + mine.extent[d]}, pins));
  }
  return result;
}

using Choice = std::vector<const OverlappingPart*>;

// Calls `visit` with every choice of one part per tensor dim.
template <class Visit>
void for_each_choice(const Overlaps& overlaps, const Visit& visit) {
  Choice choice(overlaps.parts.size());
  const auto descend = [&](const auto& self, size_t depth) -> void {
    if (depth == choice.size()) {
      visit(choice);
      return;
    }
    for (const OverlappingPart& part : overlaps.parts[depth]) {
      choice[depth] = &part;
      self(self, depth + 1);
    }
  };
  descend(descend, 0);
}

// Calls `visit` with every coordinate that has the choice's indices where the layout shards, any index on
// `free_dims`, and otherwise those given.
template <class Visit>
void for_each_holder(const Mesh& mesh, const Overlaps& overlaps, const Choice& choice, Coordinate coordinate,
                     const std::vector<int64_t>& free_dims, const Visit& visit) {
  for (size_t d = 0; d < choice.size(); ++d) {
    for (size_t i = 0; i < overlaps.cuts[d].size(); ++i) {
      coordinate[static_cast<size_t>(overlaps.cuts[d][i].mesh_dim)] = choice[d]->indices[i];
    }
  }
  const auto descend = [&](const auto& self, size_t depth) -> void {
    if (depth == free_dims.size()) {
      visit(position_at(mesh, coordinate));
      return;
    }
    for (int64_t i = 0; i < mesh.size(free_dims[depth]); ++i) {
      coordinate[static_cast<size_t>(free_dims[depth])] = i;
      self(self, depth + 1);
    }
  };
  descend(descend, 0);
}

// The box that is common to this rank's and the chosen parts, seen from both sides.
Move move_of(int64_t peer, const Choice& choice, const Box& mine) {
  Move move{.peer = peer};
  for (size_t d = 0; d < choice.size(); ++d) {
    const Interval overlap = choice[d]->overlap;
    move.mine.offset.push_back(overlap.begin - mine.offset[d]);
    move.theirs.offset.push_back(overlap.begin - choice[d]->part.begin);
    move.mine.extent.push_back(overlap.length());
  }
  move.theirs.extent = move.mine.extent;
  return move;
}

void sort_by_peer(std::vector<Move>& moves) {
  const auto before = [](const Move& a, const Move& b) { return a.peer < b.peer; };
  if (!std::is_sorted(moves.begin(), moves.end(), before)) std::sort(moves.begin(), moves.end(), before);
}

std::vector<Move> pulls_of(const Layout& from, const Layout& to, const Passage& passage, int64_t position) {
  const Box mine = to.box_at(position);
  const Overlaps overlaps =
      overlaps_with(from, mine, Pins(static_cast<size_t>(from.mesh().ndim()), kAnyIndex));
  const Coordinate home = passage.home_of(from, to, position);
  std::vector<Move> pulls;
  for_each_choice(overlaps, [&](const Choice& choice) {
    for_each_holder(from.mesh(), overlaps, choice, home, passage.resolved, [&](int64_t holder) {
      pulls.push_back(move_of(from.mesh().ranks()[static_cast<size_t>(holder)], choice, mine));
    });
  });
  sort_by_peer(pulls);
  return pulls;
}

// On one mesh the fixed dims pin where a receiver stands; across meshes each receiver's home is compared.
std::vector<Move> pushes_of(const Layout& from, const Layout& to, const Passage& passage, int64_t position) {
  const Coordinate here = from.mesh().coordinate_at(position);
  Pins pins(static_cast<size_t>(to.mesh().ndim()), kAnyIndex);
  if (passage.is_same_mesh) {
    for (const int64_t dim : passage.fixed) pins[static_cast<size_t>(dim)] = here[static_cast<size_t>(dim)];
  }
  std::vector<int64_t> free_dims;
  for (size_t m = 0; m < pins.size(); ++m) {
    if (!to.placements()[m].is_shard() && pins[m] == kAnyIndex) free_dims.push_back(static_cast<int64_t>(m));
  }
  const auto is_home = [&](int64_t receiver) {
    if (passage.is_same_mesh) return true;
    const Coordinate home = passage.home_of(from, to, receiver);
    return std::all_of(passage.fixed.begin(), passage.fixed.end(), [&](int64_t dim) {
      return home[static_cast<size_t>(dim)] == here[static_cast<size_t>(dim)];
    });
  };
  const Box mine = from.box_at(position);
  const Overlaps overlaps = overlaps_with(to, mine, pins);
  std::vector<Move> pushes;
  for_each_choice(overlaps, [&](const Choice& choice) {
    for_each_holder(to.mesh(), overlaps, choice, pins, free_dims, [&](int64_t receiver) {
      if (!is_home(receiver)) return;
      pushes.push_back(move_of(to.mesh().ranks()[static_cast<size_t>(receiver)], choice, mine));
    });
  });
  sort_by_peer(pushes);
  return pushes;
}

}  // namespace

Route redistribution_route(const Layout& from, const Layout& to, int64_t rank) {
  const Passage passage = passage_between(from, to);
  const auto largest = [](const Mesh& mesh) {
    return *std::max_element(mesh.ranks().begin(), mesh.ranks().end());
  };
  Route route{.rank = rank, .size = std::max({largest(from.mesh()), largest(to.mesh()), rank}) + 1};
  if (rank < 0) throw std::invalid_argument("redistribute: rank " + std::to_string(rank) + " is negative");
  route.op = passage.op;
  route.divisor = passage.divisor;
  route.input_shape.assign(from.shape().size(), 0);
  route.output_shape = route.input_shape;
  if (const auto position = to.mesh().position_of(rank)) {
    route.output_shape = to.box_at(*position).extent;
    route.pulls = pulls_of(from, to, passage, *position);
  }
  if (const auto position = from.mesh().position_of(rank)) {
    route.input_shape = from.box_at(*position).extent;
    route.pushes = pushes_of(from, to, passage, *position);
  }
  return route;
}

}  // namespace shardway
