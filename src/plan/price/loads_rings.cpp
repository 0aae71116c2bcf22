// Loads of one rank of every kind, counted without looking at pairs of ranks.
//
// What a rank pulls from a block of ranks is a product over tensor dims (overlaps_by_block.h). What it pulls
// from a ring is the difference of two blocks. Ranks whose coordinates are alike for every tensor dim have
// the same loads.
//
// Example: [S0, S0] → [R, R] on 2x2, length 8. Every rank pulls 8 elements from all 4 ranks. Of these, 4 come
// from the 2 ranks that agree with it on mesh dim 0, and 2 from itself. So 4 elements of 2 peers come over
// mesh dim 0, and 2 elements of 1 peer over mesh dim 1. There is one kind.
#include <algorithm>

#include "plan/price/loads.h"

namespace shardway {
namespace {

// Coordinates along a mesh dim with the same loads: the first of them, and how many there are.
struct Alike {
  size_t first = 0;
  int64_t count = 0;
};

class RankKinds {
 public:
  RankKinds(const StateExchange& exchange, const Network& network, OverlapsByBlock& overlaps)
      : space_(exchange.senders), network_(network), is_resolving_(exchange.resolved != 0) {
    const DimMask varying = space_.state(exchange.from).sharded | exchange.resolved;
    for (size_t d = 0; d < space_.shape().size(); ++d)
      overlaps_.push_back(&overlaps.along(space_, exchange.from, exchange.to, varying, d));
    for (size_t m = 0; m < space_.mesh_dims(); ++m) alike_.push_back(alike_along(m));
    const auto alike_in = [&](const Ring& ring, size_t state) {
      const DimMask dims = varying & ~space_.state(state).sharded;
      return static_cast<double>(space_.ranks_in_block(ring.block, dims));
    };
    for (const Ring& ring : network.rings()) {
      senders_alike_.push_back(alike_in(ring, exchange.from));
      receivers_alike_.push_back(alike_in(ring, exchange.to));
    }
  }

  void count(Loads& loads) {
    size_t kinds = 1;
    for (const auto& alike : alike_) kinds *= alike.size();
    loads.reset(kinds, network_.links().size());
    rows_.resize(overlaps_.size());
    for (size_t kind = 0; kind < kinds; ++kind) {
      loads.ranks[kind] = choose(kind);
      count_rings(kind, DimOverlaps::pulled, senders_alike_, loads.received, loads.received_from, loads);
      count_rings(kind, DimOverlaps::pushed, receivers_alike_, loads.sent, loads.sent_to, loads);
      loads.copied[kind] = product(1, overlaps_.empty() ? 0 : overlaps_[0]->own());
      if (is_resolving_)
        loads.combined[kind] = product(senders_alike_[0], DimOverlaps::column(0, DimOverlaps::pulled));
    }
  }

 private:
  std::vector<Alike> alike_along(size_t m) const {
    std::vector<Alike> alike;
    const auto size = static_cast<size_t>(space_.mesh_shape()[m]);
    const auto are_alike = [&](size_t a, size_t b) {
      return std::all_of(overlaps_.begin(), overlaps_.end(), [&](const DimOverlaps* overlaps) {
        return overlaps->place(m, a) == overlaps->place(m, b);
      });
    };
    for (size_t coordinate = 0; coordinate < size; ++coordinate) {
      auto known = std::find_if(alike.begin(), alike.end(),
                                [&](const Alike& other) { return are_alike(other.first, coordinate); });
      if (known == alike.end()) known = alike.insert(alike.end(), {.first = coordinate});
      ++known->count;
    }
    return alike;
  }

  // Finds the rows of a kind and returns how many ranks it has. Kinds are in the order of their first ranks.
  int64_t choose(size_t kind) {
    for (size_t d = 0; d < overlaps_.size(); ++d) rows_[d] = overlaps_[d]->rows.data();
    int64_t ranks = 1;
    for (size_t m = alike_.size(); m-- > 0; kind /= alike_[m].size()) {
      const Alike& alike = alike_[m][kind % alike_[m].size()];
      ranks *= alike.count;
      if (alike.first == 0) continue;
      for (size_t d = 0; d < overlaps_.size(); ++d)
        rows_[d] += overlaps_[d]->place(m, alike.first) * overlaps_[d]->strides[m] * overlaps_[d]->columns;
    }
    return ranks;
  }

  double product(double times, size_t column) const {
    for (const double* row : rows_) times *= row[column];
    return times;
  }

  // A ring is a block without the next smaller one; the last is the rank itself.
  void count_rings(size_t kind, DimOverlaps::Column column, const std::vector<double>& repeats,
                   std::vector<double>& elements, std::vector<int32_t>& peers, const Loads& loads) const {
    const size_t rings = repeats.size();
    const double own = product(1, DimOverlaps::column(rings, DimOverlaps::pulled));
    double outer = product(repeats[0], DimOverlaps::column(0, column));
    double outer_parts = product(repeats[0], DimOverlaps::column(0, column) + 1);
    for (size_t ring = 0; ring < rings; ++ring) {
      const bool is_last = ring + 1 == rings;
      const size_t next = DimOverlaps::column(ring + 1, column);
      const double inner = is_last ? own : product(repeats[ring + 1], next);
      const double inner_parts = is_last ? (own > 0 ? 1 : 0) : product(repeats[ring + 1], next + 1);
      const size_t slot = kind * loads.levels + network_.rings()[ring].level;
      elements[slot] += outer - inner;
      peers[slot] += static_cast<int32_t>(outer_parts - inner_parts);
      outer = inner;
      outer_parts = inner_parts;
    }
  }

  const StateSpace& space_;
  const Network& network_;
  bool is_resolving_;
  std::vector<const DimOverlaps*> overlaps_;  // [tensor dim]
  std::vector<std::vector<Alike>> alike_;     // [mesh dim]
  std::vector<double> senders_alike_;         // [ring]: ranks of its block that hold addends of the same box
  std::vector<double> receivers_alike_;       // [ring]: ranks of its block that want the same box
  std::vector<const double*> rows_;           // [tensor dim], of the kind that is counted
};

}  // namespace

void count_rings(const StateExchange& exchange, const Network& network, OverlapsByBlock& overlaps,
                 Loads& loads) {
  RankKinds(exchange, network, overlaps).count(loads);
}

}  // namespace shardway
