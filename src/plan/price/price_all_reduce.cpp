// The price of an all_reduce: a reduce_scatter of equal shares and the all_gather of their sums.
#include <algorithm>
#include <cmath>
#include <set>

#include "plan/price/price.h"

namespace shardway {
namespace {

// A box split over the members of a group as torch.chunk splits its elements.
class Shares {
 public:
  Shares(double volume, size_t members)
      : volume_(volume), step_(std::ceil(volume / static_cast<double>(members))) {}

  double of(size_t member) const { return among(member, member + 1); }
  double among(size_t first, size_t end) const { return up_to(end) - up_to(first); }
  int32_t holders_among(size_t first, size_t end) const {
    const auto holders = static_cast<size_t>(std::ceil(volume_ / step_));
    return static_cast<int32_t>(std::min(end, holders) - std::min(first, holders));
  }

 private:
  double up_to(size_t end) const { return std::min(volume_, step_ * static_cast<double>(end)); }

  double volume_;
  double step_;
};

// What a member meets over one link level.
struct Met {
  double shares = 0;
  int32_t members = 0;
  int32_t holders = 0;  // of a share that is not empty
};

// The ranks that share an all_reduce: those that differ in some mesh dims alone.
class Members {
 public:
  Members(const Terrain& terrain, DimMask dims, const Network& network)
      : terrain_(terrain), dims_(dims), network_(network) {
    for (size_t m = 0; m < terrain.mesh_dims(); ++m) {
      if (!has(dims, m)) continue;
      std::vector<size_t> more;
      for (const size_t offset : offsets_) {
        for (int64_t i = 0; i < terrain.mesh_shape()[m]; ++i) {
          more.push_back(offset + static_cast<size_t>(i * terrain.stride(m)));
        }
      }
      offsets_ = std::move(more);
    }
    for (const Ring& ring : network.rings()) blocks_.push_back(members_in(ring.block));
  }

  size_t count() const { return offsets_.size(); }

  bool is_first(size_t position) const {
    for (size_t m = 0; m < terrain_.mesh_dims(); ++m) {
      if (has(dims_, m) && terrain_.coordinate(m, position) != 0) return false;
    }
    return true;
  }

  // By level, what member `i` of the group that begins at `first` meets.
  void meet(size_t first, size_t i, const Shares& shares, std::vector<Met>& met) const {
    std::fill(met.begin(), met.end(), Met{});
    if (blocks_.empty()) {
      for (size_t j = 0; j < count(); ++j) {
        if (j != i)
          add(met[network_.level_between(first + offsets_[j], first + offsets_[i])], shares, j, j + 1);
      }
      return;
    }
    // Members of a block around this one are neighbours in the group.
    for (size_t k = 0; k < blocks_.size(); ++k) {
      const size_t outer = blocks_[k];
      const size_t inner = k + 1 < blocks_.size() ? blocks_[k + 1] : 1;
      Met& level = met[network_.rings()[k].level];
      add(level, shares, i - i % outer, i - i % inner);
      add(level, shares, i - i % inner + inner, i - i % outer + outer);
    }
  }

 private:
  static void add(Met& met, const Shares& shares, size_t first, size_t end) {
    met.shares += shares.among(first, end);
    met.members += static_cast<int32_t>(end - first);
    met.holders += shares.holders_among(first, end);
  }

  size_t members_in(int64_t block) const {
    int64_t members = 1;
    for (size_t m = 0; m < terrain_.mesh_dims(); ++m) {
      if (has(dims_, m))
        members *= std::clamp<int64_t>(block / terrain_.stride(m), 1, terrain_.mesh_shape()[m]);
    }
    return static_cast<size_t>(members);
  }

  const Terrain& terrain_;
  DimMask dims_;
  const Network& network_;
  std::vector<size_t> offsets_{0};
  std::vector<size_t> blocks_;
};

}  // namespace

Price PriceList::of_all_reduce(const Terrain& terrain, size_t state, DimMask dims) const {
  const Members members(terrain, dims, network_);
  const Bounds& bounds = terrain.bounds(state);
  const auto item = static_cast<double>(item_bytes_);
  const auto count = static_cast<double>(members.count());
  std::vector<Met> met(network_.links().size());
  std::set<double> seen;  // groups with boxes of one volume cost the same where hosts lie in blocks
  Price price;
  double worst_us = 0;
  for (size_t first = 0; first < terrain.positions(); ++first) {
    const double volume = bounds.volumes[first];
    if (!members.is_first(first) || volume == 0) continue;
    price.total_bytes += static_cast<int64_t>(2 * volume * (count - 1) * item);
    if (!network_.rings().empty() && !seen.insert(volume).second) continue;
    const Shares shares(volume, members.count());
    for (size_t i = 0; i < members.count(); ++i) {
      members.meet(first, i, shares, met);
      double latency_us = 0;
      double transfer_us = 0;
      double sent = 0;
      int64_t peers = 0;
      for (size_t level = 0; level < met.size(); ++level) {
        const Link& link = network_.links()[level];
        const double own = shares.of(i) * met[level].members;
        const int32_t here = shares.of(i) > 0 ? met[level].members : met[level].holders;
        latency_us += 2 * here * link.latency_us;
        transfer_us += 2 * us_for(std::max(own, met[level].shares) * item, link);
        sent += own + met[level].shares;
        peers += here;
      }
      const double us =
          latency_us + transfer_us + shares.of(i) * count * item * network_.reduce_us_per_byte();
      if (us > worst_us) {
        worst_us = us;
        price.latency_us = latency_us;
      }
      price.bytes = std::max(price.bytes, static_cast<int64_t>(sent * item));
      price.most_received_from = std::max(price.most_received_from, peers);
    }
  }
  price.communicates = price.total_bytes > 0;
  if (price.communicates) {
    worst_us += network_.base_us();
    price.latency_us += network_.base_us();
  }
  price.cost = to_femtoseconds(worst_us);
  return price;
}

}  // namespace shardway
