// One rank's part of the direct exchange between two layouts.
#include <algorithm>
#include <optional>
#include <stdexcept>

#include "plan/geometry/cuts.h"
#include "plan/geometry/exchange_rules.h"
#include "shardway/layout.h"

namespace shardway {
namespace {

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

// One part per tensor dim, in every combination. The parts of the last dim vary fastest. Going to the next
// combination takes no division.
class PartChoice {
 public:
  explicit PartChoice(const Overlaps& overlaps) : count_(1) {
    for (const auto& parts : overlaps) {
      count_ *= parts.size();
      dims_.push_back({.first = parts.data(), .end = parts.data() + parts.size(), .chosen = parts.data()});
    }
    for (size_t d = dims_.size(); d-- > 0;) {
      if (overlaps[d].size() > 1) varying_.push_back(d);
    }
  }

  size_t count() const { return count_; }
  const OverlappingPart& operator[](size_t dim) const { return *dims_[dim].chosen; }

  void go_to(size_t number) {
    if (number == number_) return;
    number == number_ + 1 ? step() : jump_to(number);
    number_ = number;
  }

  // The mesh position that the chosen parts lead to.
  int64_t place() const {
    int64_t place = 0;
    for (const Dim& dim : dims_) place += dim.chosen->place;
    return place;
  }

 private:
  struct Dim {
    const OverlappingPart* first;
    const OverlappingPart* end;
    const OverlappingPart* chosen;
  };

  void step() {
    for (const size_t d : varying_) {
      Dim& dim = dims_[d];
      if (++dim.chosen != dim.end) return;
      dim.chosen = dim.first;
    }
  }

  void jump_to(size_t number) {
    for (const size_t d : varying_) {
      const auto parts = static_cast<size_t>(dims_[d].end - dims_[d].first);
      dims_[d].chosen = dims_[d].first + number % parts;
      number /= parts;
    }
  }

  std::vector<Dim> dims_;
  std::vector<size_t> varying_;  // dims with more than one part, the last first
  size_t count_;
  size_t number_ = 0;
};

// The positions that differ from the first one in these dims only, as ascending distances from it.
std::vector<int64_t> distances_along(const Mesh& mesh, const std::vector<int64_t>& dims) {
  std::vector<int64_t> distances{0};
  for (const int64_t dim : dims) {
    std::vector<int64_t> longer;
    longer.reserve(distances.size() * static_cast<size_t>(mesh.size(dim)));
    for (const int64_t distance : distances) {
      for (int64_t i = 0; i < mesh.size(dim); ++i) longer.push_back(distance + i * mesh.stride(dim));
    }
    distances = std::move(longer);
  }
  return distances;
}

// The position of a coordinate whose other dims are set to 0.
int64_t position_along(const Mesh& mesh, const std::vector<int64_t>& coordinate,
                       const std::vector<int64_t>& dims) {
  int64_t position = 0;
  for (const int64_t dim : dims) position += coordinate[static_cast<size_t>(dim)] * mesh.stride(dim);
  return position;
}

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
  const Overlaps overlaps = overlaps_with(from, mine, Pins(static_cast<size_t>(mesh.ndim()), kAnyIndex));
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
