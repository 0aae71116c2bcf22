// One rank's part of the direct exchange between two layouts.
#include <algorithm>
#include <optional>
#include <stdexcept>

#include "plan/geometry/exchange_rules.h"
#include "plan/geometry/overlaps.h"
#include "shardway/layout.h"

namespace shardway {
namespace {

// The peers whose boxes overlap this rank's box. Each comes once, with the choice of parts that its box is.
class Meetings {
 public:
  Meetings(const Overlaps& overlaps, const Box& mine) : choice_(overlaps), mine_(mine) {}

  // For every choice, takes the ranks at these distances from `first` plus the choice's place. Skips the
  // positions that do not count.
  template <class Counts>
  void find(const Mesh& mesh, int64_t first, const std::vector<int64_t>& distances, const Counts& counts) {
    peers_.reserve(choice_.count() * distances.size());
    for (size_t number = 0; number < choice_.count(); ++number) {
      choice_.go_to(number);
      const int64_t nearest = first + choice_.place();
      for (const int64_t distance : distances) {
        if (!counts(nearest + distance)) continue;
        peers_.push_back({mesh.ranks()[static_cast<size_t>(nearest + distance)], number});
      }
    }
    sort_by_rank();
  }

  // What this rank's box has in common with each peer's, seen from both sides.
  Moves moves() {
    Moves moves;
    moves.reserve(peers_.size());
    const size_t dims = mine_.offset.size();
    for (const Peer& peer : peers_) {
      choice_.go_to(peer.choice);
      moves.push_back(
          {.peer = peer.rank, .mine = {Dims(dims), Dims(dims)}, .theirs = {Dims(dims), Dims(dims)}});
      set_boxes(moves.back());
    }
    return moves;
  }

 private:
  struct Peer {
    int64_t rank = 0;
    size_t choice = 0;
  };

  void set_boxes(Move& move) const {
    int64_t* from_mine = move.mine.offset.data();
    int64_t* from_theirs = move.theirs.offset.data();
    int64_t* extent = move.mine.extent.data();
    int64_t* their_extent = move.theirs.extent.data();
    for (size_t d = 0; d < mine_.offset.size(); ++d) {
      const OverlappingPart& part = choice_[d];
      from_mine[d] = part.overlap.begin - mine_.offset[d];
      from_theirs[d] = part.overlap.begin - part.part.begin;
      extent[d] = their_extent[d] = part.overlap.length();
    }
  }

  // Where many of all ranks are peers, a table indexed by rank is quicker than sorting.
  void sort_by_rank() {
    constexpr size_t kMany = 16;
    const auto before = [](const Peer& a, const Peer& b) { return a.rank < b.rank; };
    if (std::is_sorted(peers_.begin(), peers_.end(), before)) return;
    const auto last = static_cast<size_t>(std::max_element(peers_.begin(), peers_.end(), before)->rank);
    if (last > kMany * peers_.size()) {
      std::sort(peers_.begin(), peers_.end(), before);
      return;
    }
    std::vector<std::optional<Peer>> places(last + 1);
    for (const Peer& peer : peers_) places[static_cast<size_t>(peer.rank)] = peer;
    peers_.clear();
    for (const auto& place : places) {
      if (place) peers_.push_back(*place);
    }
  }

  PartChoice choice_;
  const Box& mine_;
  std::vector<Peer> peers_;
};

Moves pulls_of(const Layout& from, const Layout& to, const ExchangeRules& rules, int64_t position) {
  const Mesh& mesh = from.mesh();
  const Box mine = to.box_at(position);
  const Overlaps overlaps = overlaps_with(from, mine);
  const int64_t home = position_along(mesh, rules.home_of(from, to, position), rules.fixed);
  const std::vector<int64_t> addends = distances_along(mesh, rules.resolved);
  Meetings senders(overlaps, mine);
  senders.find(mesh, home, addends, [](int64_t) { return true; });
  return senders.moves();
}

// On one mesh the fixed dims pin the coordinates of a receiver. Across meshes every receiver's home is
// compared.
Moves pushes_of(const Layout& from, const Layout& to, const ExchangeRules& rules, int64_t position) {
  const Mesh& mesh = to.mesh();
  const std::vector<int64_t> here = from.mesh().coordinate_at(position);
  Pins pins(static_cast<size_t>(mesh.ndim()), kAnyIndex);
  if (rules.is_same_mesh) {
    for (const int64_t dim : rules.fixed) pins[static_cast<size_t>(dim)] = here[static_cast<size_t>(dim)];
  }
  std::vector<int64_t> free_dims;
  std::vector<int64_t> pinned_dims;
  for (int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    if (to.placements()[static_cast<size_t>(dim)].is_shard()) continue;
    (pins[static_cast<size_t>(dim)] == kAnyIndex ? free_dims : pinned_dims).push_back(dim);
  }
  const auto is_home = [&](int64_t receiver) {
    if (rules.is_same_mesh) return true;
    const std::vector<int64_t> home = rules.home_of(from, to, receiver);
    return std::all_of(rules.fixed.begin(), rules.fixed.end(), [&](int64_t dim) {
      return home[static_cast<size_t>(dim)] == here[static_cast<size_t>(dim)];
    });
  };
  const Box mine = from.box_at(position);
  const int64_t pinned = position_along(mesh, pins, pinned_dims);
  const std::vector<int64_t> copies = distances_along(mesh, free_dims);
  const Overlaps overlaps = overlaps_with(to, mine, pins);
  Meetings receivers(overlaps, mine);
  receivers.find(mesh, pinned, copies, is_home);
  return receivers.moves();
}

}  // namespace

Route redistribution_route(const Layout& from, const Layout& to, int64_t rank) {
  const ExchangeRules rules = exchange_rules_between(from, to);
  const auto largest = [](const Mesh& mesh) {
    return *std::max_element(mesh.ranks().begin(), mesh.ranks().end());
  };
  Route route{.rank = rank, .size = std::max({largest(from.mesh()), largest(to.mesh()), rank}) + 1};
  if (rank < 0) throw std::invalid_argument("redistribute: rank " + std::to_string(rank) + " is negative");
  route.op = rules.op;
  route.divisor = rules.divisor;
  route.input_shape.assign(from.shape().size(), 0);
  route.output_shape = route.input_shape;
  if (const auto position = to.mesh().position_of(rank)) {
    route.output_shape = to.box_at(*position).extent;
    route.pulls = pulls_of(from, to, rules, *position);
  }
  if (const auto position = from.mesh().position_of(rank)) {
    route.input_shape = from.box_at(*position).extent;
    route.pushes = pushes_of(from, to, rules, *position);
  }
  return route;
}

}  // namespace shardway
