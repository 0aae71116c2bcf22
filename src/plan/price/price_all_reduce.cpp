// The price of an all_reduce: a reduce_scatter of shares and the all_gather of what they add up to.
#include <algorithm>
#include <set>

#include "plan/geometry/all_reduce_shares.h"
#include "plan/price/price.h"

namespace shardway {
namespace {

// The ranks that share an all_reduce: those that differ in some mesh dims alone.
class Members {
 public:
  Members(const StateSpace& space, DimMask dims, const Network& network)
      : space_(space), dims_(dims), network_(network) {
    for (size_t m = 0; m < space.mesh_dims(); ++m) {
      if (!has(dims, m)) continue;
      std::vector<size_t> more;
      for (const size_t offset : offsets_) {
        for (int64_t i = 0; i < space.mesh_shape()[m]; ++i) {
          more.push_back(offset + static_cast<size_t>(i * space.stride(m)));
        }
      }
      offsets_ = std::move(more);
    }
    for (const Ring& ring : network.rings())
      blocks_.push_back(static_cast<size_t>(space.ranks_in_block(ring.block, dims)));
  }

  size_t count() const { return offsets_.size(); }

  bool is_first(size_t position) const {
    for (size_t m = 0; m < space_.mesh_dims(); ++m) {
      if (has(dims_, m) && space_.coordinate(m, position) != 0) return false;
    }
    return true;
  }

  // What member `i` of the group that begins at `first` sends and receives while shares are combined, as the
  // one kind of `loads`.
  void count_loads(size_t first, size_t i, const AllReduceShares& shares, Loads& loads) const {
    loads.reset(1, network_.links().size());
    const auto own = static_cast<double>(shares.of(static_cast<int64_t>(i)));
    loads.combined[0] = own * static_cast<double>(count());
    const auto meet = [&](size_t level, size_t begin, size_t end) {
      const auto [from, to] = std::pair(static_cast<int64_t>(begin), static_cast<int64_t>(end));
      loads.sent[level] += static_cast<double>(shares.among(from, to));
      loads.sent_to[level] += static_cast<int32_t>(shares.holders_among(from, to));
      if (own == 0) return;
      loads.received[level] += own * static_cast<double>(to - from);
      loads.received_from[level] += static_cast<int32_t>(to - from);
    };
    if (blocks_.empty()) {
      for (size_t j = 0; j < count(); ++j) {
        if (j != i) meet(network_.level_between(first + offsets_[j], first + offsets_[i]), j, j + 1);
      }
      return;
    }
    // Members of a block around this one are neighbours in the group.
    for (size_t k = 0; k < blocks_.size(); ++k) {
      const size_t outer = blocks_[k];
      const size_t inner = k + 1 < blocks_.size() ? blocks_[k + 1] : 1;
      const size_t level = network_.rings()[k].level;
      meet(level, i - i % outer, i - i % inner);
      meet(level, i - i % inner + inner, i - i % outer + outer);
    }
  }

 private:
  const StateSpace& space_;
  DimMask dims_;
  const Network& network_;
  std::vector<size_t> offsets_{0};
  std::vector<size_t> blocks_;
};

Dims extent_at(const StateBoxes& boxes, size_t position) {
  Dims extent(boxes.tensor_dims);
  for (size_t d = 0; d < extent.size(); ++d)
    extent[d] = static_cast<int64_t>(boxes.end_of(d)[position] - boxes.begin_of(d)[position]);
  return extent;
}

}  // namespace

Price PriceList::of_all_reduce(const StateSpace& space, size_t state, DimMask dims) const {
  const Members members(space, dims, network_);
  const StateBoxes& boxes = space.boxes(state);
  const auto item = static_cast<double>(item_bytes_);
  const auto count = static_cast<double>(members.count());
  Loads loads;
  // Where hosts lie in blocks, groups cost the same whose boxes have one volume and one largest share.
  std::set<std::pair<double, int64_t>> seen;
  Price price;
  ReadLoad load;
  double worst_us = 0;
  for (size_t first = 0; first < space.positions(); ++first) {
    const double volume = boxes.volumes[first];
    if (!members.is_first(first) || volume == 0) continue;
    price.total_bytes += static_cast<int64_t>(2 * volume * (count - 1) * item);
    const AllReduceShares shares(extent_at(boxes, first), static_cast<int64_t>(members.count()));
    load.most_bytes = std::max(load.most_bytes, volume * item);
    load.mean_bytes += volume * count * item / static_cast<double>(network_.ranks());
    if (!network_.rings().empty() && !seen.emplace(volume, shares.largest()).second) continue;
    for (size_t i = 0; i < members.count(); ++i) {
      members.count_loads(first, i, shares, loads);
      const LoadTime time = time_of(loads, 0, network_, item_bytes_).in_two_phases();
      if (time.us() > worst_us) {
        worst_us = time.us();
        price.latency_us = time.latency_us;
      }
      double moved = 0;  // sent in one of the two phases
      int64_t peers = 0;
      for (size_t level = 0; level < loads.levels; ++level) {
        moved += loads.sent[level] + loads.received[level];
        peers += std::max(loads.sent_to[level], loads.received_from[level]);
      }
      price.bytes = std::max(price.bytes, static_cast<int64_t>(moved * item));
      price.most_received_from = std::max(price.most_received_from, peers);
    }
  }
  price.communicates = price.total_bytes > 0;
  if (price.communicates) {
    worst_us += network_.base_us();
    price.latency_us += network_.base_us();
  }
  price.cost = to_femtoseconds(worst_us);
  load.peers = price.most_received_from;
  if (table_ != nullptr && price.communicates) price_by_table(ReadPattern::combine_in_place, load, price);
  return price;
}

}  // namespace shardway
