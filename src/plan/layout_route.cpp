// The direct exchange between two layouts, as one rank's part of it.
#include <algorithm>
#include <stdexcept>

#include "plan/cuts.h"
#include "plan/passage.h"
#include "shardway/layout.h"

namespace shardway {
namespace {

using Coordinate = std::vector<int64_t>;
using Dims = std::vector<int64_t>;

// The parts of the other layout that overlap this rank's box, per tensor dim.
using Overlaps = std::vector<std::vector<OverlappingPart>>;

Overlaps overlaps_with(const Layout& other, const Box& mine, const Pins& pins) {
  Overlaps result;
  for (int64_t dim = 0; dim < other.ndim(); ++dim) {
    const auto d = static_cast<size_t>(dim);
    result.push_back(overlapping_parts(other.shape()[d], cuts_of(other, dim),
                                       {mine.offset[d], mine.offset[d] + mine.extent[d]}, pins));
  }
  return result;
}

using Choice = std::vector<const OverlappingPart*>;

// Calls `visit` with every choice of one part per tensor dim.
template <class Visit>
void for_each_choice(const Overlaps& overlaps, const Visit& visit) {
  Choice choice(overlaps.size());
  const auto descend = [&](const auto& self, size_t depth) -> void {
    if (depth == choice.size()) {
      visit(choice);
      return;
    }
    for (const OverlappingPart& part : overlaps[depth]) {
      choice[depth] = &part;
      self(self, depth + 1);
    }
  };
  descend(descend, 0);
}

// The positions that differ from the first in some dims alone, as distances from it.
std::vector<int64_t> distances_along(const Mesh& mesh, const std::vector<int64_t>& dims) {
  std::vector<int64_t> distances{0};
  for (const int64_t dim : dims) {
    const size_t known = distances.size();
    for (int64_t i = 1; i < mesh.size(dim); ++i) {
      for (size_t k = 0; k < known; ++k) distances.push_back(distances[k] + i * mesh.stride(dim));
    }
  }
  return distances;
}

// The position that a coordinate makes on some dims, the others at 0.
int64_t position_along(const Mesh& mesh, const Coordinate& coordinate, const std::vector<int64_t>& dims) {
  int64_t position = 0;
  for (const int64_t dim : dims) position += coordinate[static_cast<size_t>(dim)] * mesh.stride(dim);
  return position;
}

int64_t place_of(const Choice& choice) {
  int64_t place = 0;
  for (const OverlappingPart* part : choice) place += part->place;
  return place;
}

// The box that is common to this rank's and the chosen parts, seen from both sides.
Move move_of(int64_t peer, const Choice& choice, const Box& mine) {
  const size_t dims = choice.size();
  Move move{.peer = peer, .mine = {Dims(dims), Dims(dims)}, .theirs = {Dims(dims), Dims(dims)}};
  for (size_t d = 0; d < dims; ++d) {
    const Interval overlap = choice[d]->overlap;
    move.mine.offset[d] = overlap.begin - mine.offset[d];
    move.theirs.offset[d] = overlap.begin - choice[d]->part.begin;
    move.mine.extent[d] = overlap.length();
    move.theirs.extent[d] = overlap.length();
  }
  return move;
}

void sort_by_peer(std::vector<Move>& moves) {
  const auto before = [](const Move& a, const Move& b) { return a.peer < b.peer; };
  if (!std::is_sorted(moves.begin(), moves.end(), before)) std::sort(moves.begin(), moves.end(), before);
}

std::vector<Move> pulls_of(const Layout& from, const Layout& to, const Passage& passage, int64_t position) {
  const Mesh& mesh = from.mesh();
  const Box mine = to.box_at(position);
  const Overlaps overlaps = overlaps_with(from, mine, Pins(static_cast<size_t>(mesh.ndim()), kAnyIndex));
  const int64_t home = position_along(mesh, passage.home_of(from, to, position), passage.fixed);
  const std::vector<int64_t> addends = distances_along(mesh, passage.resolved);
  std::vector<Move> pulls;
  for_each_choice(overlaps, [&](const Choice& choice) {
    const int64_t first = home + place_of(choice);
    for (const int64_t distance : addends) {
      pulls.push_back(move_of(mesh.ranks()[static_cast<size_t>(first + distance)], choice, mine));
    }
  });
  sort_by_peer(pulls);
  return pulls;
}

// On one mesh the fixed dims pin where a receiver stands; across meshes each receiver's home is compared.
std::vector<Move> pushes_of(const Layout& from, const Layout& to, const Passage& passage, int64_t position) {
  const Mesh& mesh = to.mesh();
  const Coordinate here = from.mesh().coordinate_at(position);
  Pins pins(static_cast<size_t>(mesh.ndim()), kAnyIndex);
  if (passage.is_same_mesh) {
    for (const int64_t dim : passage.fixed) pins[static_cast<size_t>(dim)] = here[static_cast<size_t>(dim)];
  }
  std::vector<int64_t> free_dims;
  std::vector<int64_t> pinned_dims;
  for (int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    if (to.placements()[static_cast<size_t>(dim)].is_shard()) continue;
    (pins[static_cast<size_t>(dim)] == kAnyIndex ? free_dims : pinned_dims).push_back(dim);
  }
  const auto is_home = [&](int64_t receiver) {
    if (passage.is_same_mesh) return true;
    const Coordinate home = passage.home_of(from, to, receiver);
    return std::all_of(passage.fixed.begin(), passage.fixed.end(), [&](int64_t dim) {
      return home[static_cast<size_t>(dim)] == here[static_cast<size_t>(dim)];
    });
  };
  const Box mine = from.box_at(position);
  const int64_t pinned = position_along(mesh, pins, pinned_dims);
  const std::vector<int64_t> copies = distances_along(mesh, free_dims);
  std::vector<Move> pushes;
  for_each_choice(overlaps_with(to, mine, pins), [&](const Choice& choice) {
    const int64_t first = pinned + place_of(choice);
    for (const int64_t distance : copies) {
      if (!is_home(first + distance)) continue;
      pushes.push_back(move_of(mesh.ranks()[static_cast<size_t>(first + distance)], choice, mine));
    }
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
