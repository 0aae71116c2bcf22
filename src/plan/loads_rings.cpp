// Loads without looking at pairs of ranks.
//
// Around a rank lie nested blocks of ranks. What the rank pulls from a block is a product over tensor dims:
// along each, the sum of the overlaps of its interval with the parts of those ranks. The same holds for the
// number of peers, and for what it sends. A ring's share is the difference of two blocks.
//
// Example: [S0, S0] → [R, R] on 2x2, length 8, rank 0: from all 8 elements of 4 ranks; from those that agree
// on mesh dim 0, 4 elements of 2; from itself 2 of 1. So 4 elements of 2 peers come over mesh dim 0, and 2
// of 1 over mesh dim 1.
#include <algorithm>
#include <array>
#include <span>

#include "plan/cuts.h"
#include "plan/loads.h"

namespace shardway {
namespace {

struct Amount {
  double elements = 0;
  double parts = 0;

  Amount& operator+=(Amount other) {
    elements += other.elements;
    parts += other.parts;
    return *this;
  }
};

// Of several positions.
struct Amounts {
  std::vector<double> elements;
  std::vector<double> parts;

  Amounts(size_t positions, double value) : elements(positions, value), parts(positions, value) {}

  void multiply(size_t i, const Amount& amount) {
    elements[i] *= amount.elements;
    parts[i] *= amount.parts;
  }
};

Amount operator*(Amount amount, double times) { return {amount.elements * times, amount.parts * times}; }

// The indices along each mesh dim that count.
struct Range {
  int64_t first = 0;
  int64_t last = 0;
};
using Ranges = std::array<Range, kMostMeshDims>;

// Of the parts of one tensor dim whose indices count, how much of `wanted` they hold, and how many hold any.
class PartSum {
 public:
  PartSum(const std::vector<Cut>& cuts, const Ranges& ranges, Interval wanted)
      : cuts_(cuts), ranges_(ranges), wanted_(wanted) {}

  Amount within(Interval whole, size_t depth = 0) const {
    const Interval overlap = common(whole, wanted_);
    if (overlap.length() == 0) return {};
    if (depth == cuts_.size()) return {static_cast<double>(overlap.length()), 1};
    const Cut& cut = cuts_[depth];
    const Range range = ranges_[static_cast<size_t>(cut.mesh_dim)];
    if (!cut.bounds.empty()) return one_by_one(whole, depth, range);
    // Parts of one length that lie wholly in `wanted` hold alike: one is looked at for all of them.
    const int64_t step = (whole.length() + cut.parts - 1) / cut.parts;
    const int64_t first = std::max(range.first, (overlap.begin - whole.begin) / step);
    const int64_t last = std::min(range.last, (overlap.end - 1 - whole.begin) / step);
    const int64_t first_inner = std::max(first, (overlap.begin - whole.begin + step - 1) / step);
    const int64_t last_inner = std::min(last, (overlap.end - whole.begin) / step - 1);
    if (last_inner - first_inner < 1) return one_by_one(whole, depth, {first, last});
    Amount amount =
        within(cut.part(whole, first_inner), depth + 1) * static_cast<double>(last_inner - first_inner + 1);
    amount += one_by_one(whole, depth, {first, first_inner - 1});
    amount += one_by_one(whole, depth, {last_inner + 1, last});
    return amount;
  }

 private:
  Amount one_by_one(Interval whole, size_t depth, Range range) const {
    Amount amount;
    for (int64_t i = range.first; i <= range.last; ++i)
      amount += within(cuts_[depth].part(whole, i), depth + 1);
    return amount;
  }

  const std::vector<Cut>& cuts_;
  const Ranges& ranges_;
  Interval wanted_;
};

// One direction of an exchange: what a rank in `mine` has in common with the ranks around it in `theirs`.
class Side {
 public:
  // On dims of `varying` the other rank's coordinate may differ; on those that do not cut in `theirs` every
  // such coordinate counts once.
  Side(const Terrain& terrain, size_t mine, size_t theirs, DimMask varying, const Network& network,
       std::span<const size_t> positions)
      : terrain_(terrain),
        positions_(positions),
        mine_state_(mine),
        mine_(terrain.bounds(mine)),
        theirs_(terrain.bounds(theirs)),
        varying_(varying),
        network_(network) {
    const DimMask repeating = varying & ~terrain.state(theirs).sharded;
    for (size_t k = 0; k < rings(); ++k) {
      repeats_.push_back(1);
      for (size_t m = 0; m < terrain.mesh_dims(); ++m) {
        if (has(repeating, m)) repeats_.back() *= static_cast<double>(span_of(k, m));
      }
    }
    for (size_t d = 0; d < terrain.shape().size(); ++d) cuts_.push_back(terrain.cuts_of(theirs, d));
  }

  // What the ranks at the positions have in common with those of the k-th blocks around them; the block
  // after the last ring is the rank itself.
  Amounts in_blocks(size_t k) const {
    if (k == rings()) return with_themselves();
    Amounts amounts(positions_.size(), repeats_[k]);
    for (size_t d = 0; d < cuts_.size(); ++d) multiply_along(d, k, amounts);
    return amounts;
  }

 private:
  size_t rings() const { return network_.rings().size(); }

  // How many indices along a mesh dim a block holds.
  int64_t span_of(size_t k, size_t mesh_dim) const {
    if (!has(varying_, mesh_dim)) return 1;
    return std::clamp<int64_t>(network_.rings()[k].block / terrain_.stride(mesh_dim), 1,
                               terrain_.mesh_shape()[mesh_dim]);
  }

  // The mesh dims that cut this tensor dim here, and those there along which the block is not everything:
  // ranks that agree on them share a sum.
  DimMask dims_that_matter(size_t d, size_t k) const {
    DimMask dims = 0;
    for (const int64_t m : terrain_.order_of(mine_state_, d)) dims |= 1U << static_cast<size_t>(m);
    for (const Cut& cut : cuts_[d]) {
      const auto m = static_cast<size_t>(cut.mesh_dim);
      if (span_of(k, m) < terrain_.mesh_shape()[m]) dims |= 1U << m;
    }
    return dims;
  }

  void multiply_along(size_t d, size_t k, Amounts& amounts) const {
    const DimMask dims = dims_that_matter(d, k);
    const bool is_worth_keeping = terrain_.ranks_along(dims) < static_cast<double>(positions_.size());
    if (!is_worth_keeping) {
      for (size_t i = 0; i < positions_.size(); ++i) amounts.multiply(i, sum_along(d, k, positions_[i]));
      return;
    }
    const std::vector<uint32_t>& keys = terrain_.keys_along(dims);
    std::vector<Amount> sums(static_cast<size_t>(terrain_.ranks_along(dims)), Amount{-1, -1});
    for (size_t i = 0; i < positions_.size(); ++i) {
      Amount& sum = sums[keys[positions_[i]]];
      if (sum.parts < 0) sum = sum_along(d, k, positions_[i]);
      amounts.multiply(i, sum);
    }
  }

  Amount sum_along(size_t d, size_t k, size_t position) const {
    Ranges ranges;
    for (size_t m = 0; m < terrain_.mesh_dims(); ++m) {
      const int64_t own = terrain_.coordinate(m, position);
      const int64_t span = span_of(k, m);
      ranges[m] = {own - own % span, own - own % span + span - 1};
    }
    const Interval wanted{static_cast<int64_t>(mine_.begin_of(d)[position]),
                          static_cast<int64_t>(mine_.end_of(d)[position])};
    return PartSum(cuts_[d], ranges, wanted).within({0, terrain_.shape()[d]});
  }

  Amounts with_themselves() const {
    Amounts amounts(positions_.size(), 1);
    for (size_t i = 0; i < positions_.size(); ++i) {
      const size_t p = positions_[i];
      for (size_t d = 0; d < cuts_.size(); ++d) {
        const double begin = std::max(mine_.begin_of(d)[p], theirs_.begin_of(d)[p]);
        amounts.elements[i] *= std::max(0.0, std::min(mine_.end_of(d)[p], theirs_.end_of(d)[p]) - begin);
      }
      amounts.parts[i] = amounts.elements[i] > 0 ? 1 : 0;
    }
    return amounts;
  }

  const Terrain& terrain_;
  std::span<const size_t> positions_;
  size_t mine_state_;
  const Bounds& mine_;
  const Bounds& theirs_;
  DimMask varying_;
  const Network& network_;
  std::vector<std::vector<Cut>> cuts_;
  std::vector<double> repeats_;  // [ring]: ranks that hold the same in its block
};

// A ring is a block without the next smaller one. Gives back what a rank shares with itself.
Amounts take_rings(const Side& side, const Network& network, std::vector<double>& elements,
                   std::vector<int32_t>& peers) {
  Amounts outer = side.in_blocks(0);
  for (size_t k = 0; k < network.rings().size(); ++k) {
    Amounts inner = side.in_blocks(k + 1);
    const size_t level = network.rings()[k].level;
    for (size_t rank = 0; rank < outer.elements.size(); ++rank) {
      const size_t slot = rank * network.links().size() + level;
      elements[slot] += outer.elements[rank] - inner.elements[rank];
      peers[slot] += static_cast<int32_t>(outer.parts[rank] - inner.parts[rank]);
    }
    outer = std::move(inner);
  }
  return outer;
}

}  // namespace

void count_rings(const Exchange& exchange, const Network& network, std::span<const size_t> positions,
                 Loads& loads) {
  const Terrain& terrain = exchange.senders;
  const DimMask varying = terrain.state(exchange.from).sharded | exchange.resolved;
  const Side pulls(terrain, exchange.to, exchange.from, varying, network, positions);
  const Side pushes(terrain, exchange.from, exchange.to, varying, network, positions);
  loads.reset(positions.size(), network.links().size());
  if (exchange.resolved != 0) loads.combined = pulls.in_blocks(0).elements;
  loads.copied = take_rings(pulls, network, loads.received, loads.received_from).elements;
  take_rings(pushes, network, loads.sent, loads.sent_to);
}

}  // namespace shardway
