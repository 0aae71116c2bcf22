#include "step_prices.h"

#include <algorithm>
#include <limits>
#include <map>

namespace shardway::testing {
namespace {

constexpr double kNoStep = std::numeric_limits<double>::infinity();
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

int64_t position_in(const Mesh& mesh, int64_t rank) {
  const auto found = std::find(mesh.ranks().begin(), mesh.ranks().end(), rank);
  return found == mesh.ranks().end() ? -1 : found - mesh.ranks().begin();
}

int64_t host_of(const Topology& topology, int64_t rank) {
  if (!topology.host_of_rank.empty()) return topology.host_of_rank[static_cast<size_t>(rank)];
  return topology.ranks_per_host == 0 ? 0 : rank / topology.ranks_per_host;
}

// The outermost dim of a mesh in which two ranks differ; nothing when one of them is elsewhere.
std::optional<size_t> dim_between(const Mesh& mesh, int64_t a, int64_t b) {
  const int64_t at_a = position_in(mesh, a);
  const int64_t at_b = position_in(mesh, b);
  if (at_a < 0 || at_b < 0) return std::nullopt;
  const Coordinate here = coordinate_of(mesh, at_a);
  const Coordinate there = coordinate_of(mesh, at_b);
  for (size_t m = 0; m < here.size(); ++m) {
    if (here[m] != there[m]) return m;
  }
  return std::nullopt;
}

Link link_along(const Mesh& mesh, size_t dim, const Topology& topology) {
  if (!mesh.names().empty() && topology.dims.contains(mesh.names()[dim]))
    return topology.dims.at(mesh.names()[dim]);
  const auto by_number = topology.dims.find(std::to_string(dim));
  return by_number == topology.dims.end() ? topology.within_host : by_number->second;
}

double us_of(int64_t bytes, double gib_per_s) { return static_cast<double>(bytes) / kGib / gib_per_s * 1e6; }

int64_t common_elements(const Box& a, const Box& b) {
  int64_t elements = 1;
  for (size_t d = 0; d < a.offset.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    elements *= std::max<int64_t>(0, end - begin);
  }
  return elements;
}

bool keeps_partial(const Layout& from, const Layout& to, size_t m) {
  return from.mesh() == to.mesh() && from.placements()[m].is_partial() && to.placements()[m].is_partial();
}

bool makes_addends(const Layout& from, const Layout& to) {
  for (size_t m = 0; m < to.placements().size(); ++m) {
    if (!to.placements()[m].is_partial()) continue;
    if (!(from.mesh() == to.mesh()) || !(from.placements()[m] == to.placements()[m])) return true;
  }
  return false;
}

// The mesh dims whose addends are combined where nothing else changes; none where something does.
std::vector<int64_t> dims_combined_in_place(const Layout& from, const Layout& to) {
  std::vector<int64_t> dims;
  if (!(from.mesh() == to.mesh()) || from.order() != to.order()) return {};
  for (size_t m = 0; m < from.placements().size(); ++m) {
    if (from.placements()[m] == to.placements()[m]) continue;
    if (!from.placements()[m].is_partial() || !to.placements()[m].is_replicate()) return {};
    dims.push_back(static_cast<int64_t>(m));
  }
  return dims;
}

// The coordinate that a receiver pulls from where the source replicates or an addend stays: its own, or for
// ranks outside the source that of replica number `receiver` modulo replicas, the last dim fastest.
Coordinate home_of(const Held& from, int64_t receiver, int64_t own_sender) {
  if (own_sender >= 0) return from.coordinates[static_cast<size_t>(own_sender)];
  Coordinate home(from.layout.mesh().shape().size(), 0);
  for (size_t m = home.size(); m-- > 0;) {
    if (!from.layout.placements()[m].is_replicate()) continue;
    home[m] = receiver % from.layout.mesh().shape()[m];
    receiver /= from.layout.mesh().shape()[m];
  }
  return home;
}

// The elements of the largest of `count` slabs, along the dim that makes it smallest.
int64_t largest_slab(const Box& box, int64_t count) {
  int64_t least = box.volume();
  if (least == 0) return 0;
  for (const int64_t length : box.extent)
    least = std::min(least, box.volume() / length * ((length + count - 1) / count));
  return least;
}

}  // namespace

Held::Held(Layout held) : layout(std::move(held)), boxes(reference_boxes(layout)) {
  for (int64_t position = 0; position < layout.mesh().size(); ++position)
    coordinates.push_back(coordinate_of(layout.mesh(), position));
}

// What every rank sends, receives, copies and combines, in elements.
class StepPrices::Work {
 public:
  explicit Work(const StepPrices& prices)
      : prices_(prices), traffic_(prices.ranks_ * prices.links_.size()), local_(prices.ranks_) {}

  void message(size_t sender, size_t receiver, size_t level, int64_t elements) {
    if (elements == 0) return;
    communicates_ = true;
    Traffic& out = traffic_[sender * prices_.links_.size() + level];
    Traffic& in = traffic_[receiver * prices_.links_.size() + level];
    out.sent_to += 1;
    out.sent += elements;
    in.received_from += 1;
    in.received += elements;
  }
  void copy(size_t rank, int64_t elements) { local_[rank].copied += elements; }
  void combine(size_t rank, int64_t elements) { local_[rank].combined += elements; }

  double busiest_us(int64_t item, int64_t phases = 1) const {
    const Topology& topology = prices_.topology_;
    double worst = 0;
    for (size_t rank = 0; rank < local_.size(); ++rank) {
      double us = 0;
      for (size_t level = 0; level < prices_.links_.size(); ++level) {
        const Traffic& own = traffic_[rank * prices_.links_.size() + level];
        const Link& link = prices_.links_[level];
        us += static_cast<double>(phases * std::max(own.sent_to, own.received_from)) * link.latency_us +
              us_of(phases * std::max(own.sent, own.received) * item, link.gib_per_s);
      }
      if (topology.copy_gib_per_s > 0) us += us_of(local_[rank].copied * item, topology.copy_gib_per_s);
      if (topology.reduce_gib_per_s > 0) us += us_of(local_[rank].combined * item, topology.reduce_gib_per_s);
      worst = std::max(worst, us);
    }
    return worst + (communicates_ ? topology.base_us : 0);
  }

 private:
  struct Traffic {
    int64_t sent_to = 0;
    int64_t received_from = 0;
    int64_t sent = 0;
    int64_t received = 0;
  };
  struct Local {
    int64_t copied = 0;
    int64_t combined = 0;
  };

  const StepPrices& prices_;
  std::vector<Traffic> traffic_;  // [rank][level]
  std::vector<Local> local_;      // [rank]
  bool communicates_ = false;
};

// Levels: the senders' mesh dims, the receivers', ranks of one host that share no mesh, the host border.
StepPrices::StepPrices(const Mesh& senders, const Mesh& receivers, const Topology& topology)
    : topology_(topology) {
  for (size_t m = 0; m < senders.shape().size(); ++m) links_.push_back(link_along(senders, m, topology));
  for (size_t m = 0; m < receivers.shape().size(); ++m) links_.push_back(link_along(receivers, m, topology));
  links_.push_back(topology.within_host);
  links_.push_back(topology.between_hosts);
  for (const int64_t a : senders.ranks()) {
    levels_.emplace_back();
    ranks_ = std::max(ranks_, static_cast<size_t>(a) + 1);
    for (const int64_t b : receivers.ranks()) {
      ranks_ = std::max(ranks_, static_cast<size_t>(b) + 1);
      size_t level = links_.size() - 2;
      if (const auto dim = dim_between(receivers, a, b)) level = senders.shape().size() + *dim;
      if (const auto dim = dim_between(senders, a, b)) level = *dim;
      if (host_of(topology, a) != host_of(topology, b)) level = links_.size() - 1;
      levels_.back().push_back(level);
    }
  }
  for (const int64_t rank : receivers.ranks()) own_sender_.push_back(position_in(senders, rank));
}

double StepPrices::exchange_us(const Held& from, const Held& to) const {
  if (makes_addends(from.layout, to.layout)) return kNoStep;
  std::vector<size_t> pinned;  // dims on which a receiver pulls from its home alone
  bool is_reduction = false;
  for (size_t m = 0; m < from.layout.placements().size(); ++m) {
    const Placement& placement = from.layout.placements()[m];
    const bool stays = keeps_partial(from.layout, to.layout, m);
    if (placement.is_replicate() || stays) pinned.push_back(m);
    if (placement.is_partial() && !stays) is_reduction = true;
  }
  Work work(*this);
  for (size_t r = 0; r < to.boxes.size(); ++r) {
    const Coordinate home = home_of(from, static_cast<int64_t>(r), own_sender_[r]);
    const auto receiver = static_cast<size_t>(to.layout.mesh().ranks()[r]);
    for (size_t s = 0; s < from.boxes.size(); ++s) {
      const Coordinate& there = from.coordinates[s];
      if (std::any_of(pinned.begin(), pinned.end(), [&](size_t m) { return there[m] != home[m]; })) continue;
      const int64_t elements = common_elements(from.boxes[s], to.boxes[r]);
      if (is_reduction) work.combine(receiver, elements);
      if (static_cast<int64_t>(s) == own_sender_[r]) {
        work.copy(receiver, elements);
      } else {
        work.message(static_cast<size_t>(from.layout.mesh().ranks()[s]), receiver, levels_[s][r], elements);
      }
    }
  }
  return work.busiest_us(item_bytes(from.layout.dtype()));
}

double StepPrices::all_reduce_us(const Held& from, const std::vector<int64_t>& dims) const {
  std::map<Coordinate, std::vector<size_t>> groups;  // positions by their coordinates on the other dims
  for (size_t position = 0; position < from.boxes.size(); ++position) {
    Coordinate key = from.coordinates[position];
    for (const int64_t dim : dims) key[static_cast<size_t>(dim)] = 0;
    groups[key].push_back(position);
  }
  Work scatter(*this);  // the gather is the same with every message turned round, and so costs the same
  for (const auto& [key, members] : groups) {
    const int64_t volume = from.boxes[members[0]].volume();
    const auto count = static_cast<int64_t>(members.size());
    const int64_t piece = largest_slab(from.boxes[members[0]], count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t share = std::clamp<int64_t>(volume - i * piece, 0, piece);
      const size_t owner = members[static_cast<size_t>(i)];
      const auto rank = static_cast<size_t>(from.layout.mesh().ranks()[owner]);
      scatter.combine(rank, share * count);
      for (const size_t member : members) {
        if (member == owner) continue;
        scatter.message(static_cast<size_t>(from.layout.mesh().ranks()[member]), rank, levels_[member][owner],
                        share);
      }
    }
  }
  return scatter.busiest_us(item_bytes(from.layout.dtype()), 2);
}

double StepPrices::step_us(const Held& from, const Held& to) const {
  double us = exchange_us(from, to);
  const std::vector<int64_t> dims = dims_combined_in_place(from.layout, to.layout);
  if (!dims.empty()) us = std::min(us, all_reduce_us(from, dims));
  return us;
}

}  // namespace shardway::testing
