#include "plan/price/state_space.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace shardway {
namespace {

constexpr size_t kFewRanks = 64;

void collect_ragged(const Layout& layout, const Mesh& mesh, std::vector<RaggedRole>& ragged) {
  if (!(layout.mesh() == mesh)) return;
  for (size_t m = 0; m < layout.placements().size(); ++m) {
    if (!layout.placements()[m].is_ragged()) continue;
    RaggedRole role{.mesh_dim = static_cast<int64_t>(m), .placement = layout.placements()[m]};
    if (std::find(ragged.begin(), ragged.end(), role) == ragged.end()) ragged.push_back(std::move(role));
  }
}

// All ways in which mesh dims may shard. One dim after the other takes a place in a tensor dim's order, and
// those behind it move inward. So every arrangement comes once.
class Arrangements {
 public:
  Arrangements(size_t mesh_dims, size_t tensor_dims, const std::vector<RaggedRole>& ragged)
      : mesh_dims_(mesh_dims), ragged_(ragged), orders_(tensor_dims) {}

  template <class Visit>
  void each(const Visit& visit) {
    descend(0, visit);
  }

 private:
  struct Entry {
    size_t mesh_dim;
    int8_t ragged;
  };

  template <class Visit>
  void descend(size_t mesh_dim, const Visit& visit) {
    if (mesh_dim == mesh_dims_) {
      visit(state());
      return;
    }
    descend(mesh_dim + 1, visit);
    for (auto& order : orders_) {
      const size_t first = !order.empty() && order.front().ragged >= 0 ? 1 : 0;
      for (size_t place = first; place <= order.size(); ++place) insert(order, place, {mesh_dim, -1}, visit);
    }
    for (size_t k = 0; k < ragged_.size(); ++k) {
      if (static_cast<size_t>(ragged_[k].mesh_dim) != mesh_dim) continue;
      auto& order = orders_[static_cast<size_t>(ragged_[k].placement.dim)];
      if (!order.empty() && order.front().ragged >= 0) continue;
      insert(order, 0, {mesh_dim, static_cast<int8_t>(k)}, visit);
    }
  }

  template <class Visit>
  void insert(std::vector<Entry>& order, size_t place, Entry entry, const Visit& visit) {
    order.insert(order.begin() + static_cast<int64_t>(place), entry);
    descend(entry.mesh_dim + 1, visit);
    order.erase(order.begin() + static_cast<int64_t>(place));
  }

  ShardState state() const {
    ShardState state;
    for (size_t d = 0; d < orders_.size(); ++d) {
      for (size_t i = 0; i < orders_[d].size(); ++i) {
        const Entry& entry = orders_[d][i];
        state.roles[entry.mesh_dim] = {static_cast<int8_t>(d), static_cast<uint8_t>(i), entry.ragged};
        state.sharded |= 1U << entry.mesh_dim;
      }
    }
    return state;
  }

  size_t mesh_dims_;
  const std::vector<RaggedRole>& ragged_;
  std::vector<std::vector<Entry>> orders_;
};

}  // namespace

StateSpace::StateSpace(const Layout& from, const Layout& to, const Mesh& mesh)
    : shape_(from.shape()), mesh_shape_(mesh.shape()), positions_(static_cast<size_t>(mesh.size())) {
  if (mesh_shape_.size() > kMostMeshDims) {
    throw std::invalid_argument("plan: a mesh of " + std::to_string(mesh_shape_.size()) + " dims; at most " +
                                std::to_string(kMostMeshDims) + " can be planned: flatten neighbouring dims");
  }
  if (shape_.size() > kMostTensorDims) {
    throw std::invalid_argument("plan: a tensor of " + std::to_string(shape_.size()) + " dims; at most " +
                                std::to_string(kMostTensorDims) + " can be planned");
  }
  collect_ragged(from, mesh, ragged_);
  collect_ragged(to, mesh, ragged_);
  strides_.assign(mesh_shape_.size(), 1);
  for (size_t m = mesh_shape_.size(); m-- > 1;) strides_[m - 1] = strides_[m] * mesh_shape_[m];
  coordinates_.resize(mesh_shape_.size() * positions_);
  for (size_t m = 0; m < mesh_shape_.size(); ++m) {
    for (size_t p = 0; p < positions_; ++p) {
      coordinates_[m * positions_ + p] =
          static_cast<int32_t>(static_cast<int64_t>(p) / strides_[m] % mesh_shape_[m]);
    }
  }
  const auto leaves_none_empty = [this](int64_t length) {
    const auto ranks = static_cast<int64_t>(positions_);
    return length > 0 && (length % ranks == 0 || length > ranks * (ranks - 1));
  };
  is_cramped_ = !ragged_.empty() || !std::all_of(shape_.begin(), shape_.end(), leaves_none_empty) ||
                std::find(mesh_shape_.begin(), mesh_shape_.end(), 1) != mesh_shape_.end();
  is_complete_ = fits_all();
  if (is_complete_) {
    enumerate_all();
  } else {
    enumerate_near(from, to);
  }
  find_longest();
  find_filled();
  boxes_.resize(states_.size());
  sampled_.resize(states_.size());
  all_.resize(positions_);
  std::iota(all_.begin(), all_.end(), 0);
  if (positions_ <= kFewRanks) return;
  // Evenly, and at an odd stride, so that all coordinates differ.
  for (size_t i = 0; i < kFewRanks; ++i) sample_.push_back((i * (positions_ / kFewRanks + 1)) % positions_);
  sample_.push_back(positions_ - 1);
}

// If k mesh dims shard, there are at most k! orders times the ways to part them among the tensor dims.
bool StateSpace::fits_all() const {
  const auto mesh_dims = static_cast<double>(mesh_shape_.size());
  const auto tensor_dims = static_cast<double>(shape_.size());
  double states = 1;
  double with_k = 1;
  for (double k = 1; k <= mesh_dims; ++k) {
    with_k *= (mesh_dims - k + 1) * (tensor_dims + k - 1) / k;
    states += with_k;
  }
  return states <= static_cast<double>(kMostStates);
}

void StateSpace::enumerate_all() {
  Arrangements(mesh_shape_.size(), shape_.size(), ragged_).each([this](const ShardState& state) {
    add(state);
  });
}

void StateSpace::enumerate_near(const Layout& from, const Layout& to) {
  std::vector<ShardState> ends;
  for (const Layout* end : {&from, &to}) {
    if (end->mesh().shape() == mesh_shape_) ends.push_back(state_of(*end));
  }
  states_ = ends;
  const size_t choices = ends.size() + 1;
  size_t combinations = 1;
  for (size_t m = 0; m < mesh_shape_.size(); ++m) combinations *= choices;
  for (size_t number = 0; number < combinations && states_.size() < kMostStates; ++number) {
    ShardState state;
    std::vector<uint8_t> places(shape_.size(), 0);
    size_t rest = number;
    for (size_t m = 0; m < mesh_shape_.size(); ++m, rest /= choices) {
      const size_t choice = rest % choices;
      if (choice == ends.size() || ends[choice].roles[m].tensor_dim < 0) continue;
      const int8_t dim = ends[choice].roles[m].tensor_dim;
      state.roles[m] = {dim, places[static_cast<size_t>(dim)]++, -1};
      state.sharded |= 1U << m;
    }
    if (std::find(states_.begin(), states_.end(), state) == states_.end()) states_.push_back(state);
  }
}

ShardState StateSpace::state_of(const Layout& layout) const {
  ShardState state;
  for (size_t d = 0; d < layout.order().size(); ++d) {
    for (size_t i = 0; i < layout.order()[d].size(); ++i) {
      const auto m = static_cast<size_t>(layout.order()[d][i]);
      const RaggedRole role{.mesh_dim = static_cast<int64_t>(m), .placement = layout.placements()[m]};
      const auto ragged = std::find(ragged_.begin(), ragged_.end(), role);
      state.roles[m] = {static_cast<int8_t>(d), static_cast<uint8_t>(i),
                        static_cast<int8_t>(ragged == ragged_.end() ? -1 : ragged - ragged_.begin())};
      state.sharded |= 1U << m;
    }
  }
  return state;
}

size_t StateSpace::index_of(const Layout& layout) const {
  const auto found = std::find(states_.begin(), states_.end(), state_of(layout));
  if (found == states_.end())
    throw std::logic_error("plan: " + to_string(layout) + " is not in its state space");
  return static_cast<size_t>(found - states_.begin());
}

std::vector<int64_t> StateSpace::order_of(size_t index, size_t tensor_dim) const {
  std::vector<int64_t> order;
  const ShardState& state = states_[index];
  for (size_t m = 0; m < mesh_shape_.size(); ++m) {
    if (state.roles[m].tensor_dim != static_cast<int8_t>(tensor_dim)) continue;
    const auto place = static_cast<size_t>(state.roles[m].place);
    if (order.size() <= place) order.resize(place + 1);
    order[place] = static_cast<int64_t>(m);
  }
  return order;
}

std::vector<Cut> StateSpace::cuts_of(size_t index, size_t tensor_dim) const {
  std::vector<Cut> cuts;
  for (const int64_t m : order_of(index, tensor_dim))
    cuts.push_back(cut_of(states_[index], static_cast<size_t>(m)));
  return cuts;
}

Placement StateSpace::placement_of(size_t index, size_t mesh_dim) const {
  const ShardState::Role& role = states_[index].roles[mesh_dim];
  if (role.tensor_dim < 0) return replicate();
  if (role.ragged >= 0) return ragged_[static_cast<size_t>(role.ragged)].placement;
  return shard(role.tensor_dim);
}

double StateSpace::ranks_along(DimMask dims) const {
  double ranks = 1;
  for (size_t m = 0; m < mesh_shape_.size(); ++m) {
    if (has(dims, m)) ranks *= static_cast<double>(mesh_shape_[m]);
  }
  return ranks;
}

int64_t StateSpace::coordinates_in_block(int64_t block, size_t mesh_dim) const {
  return std::clamp<int64_t>(block / strides_[mesh_dim], 1, mesh_shape_[mesh_dim]);
}

int64_t StateSpace::ranks_in_block(int64_t block, DimMask dims) const {
  int64_t ranks = 1;
  for (size_t m = 0; m < mesh_shape_.size(); ++m) {
    if (has(dims, m)) ranks *= coordinates_in_block(block, m);
  }
  return ranks;
}

DimMask StateSpace::unsettled(size_t from, size_t to) const {
  const ShardState& a = states_[from];
  const ShardState& b = states_[to];
  DimMask same = 0;
  for (size_t m = 0; m < mesh_shape_.size(); ++m) {
    if (a.roles[m].tensor_dim >= 0 && a.roles[m] == b.roles[m]) same |= 1U << m;
  }
  // A cut is settled if it and all cuts outside it are the same in both states.
  DimMask settled = same;
  for (size_t m = 0; m < mesh_shape_.size(); ++m) {
    if (has(same, m) || !has(a.sharded, m)) continue;
    for (size_t inner = 0; inner < mesh_shape_.size(); ++inner) {
      if (a.roles[inner].tensor_dim == a.roles[m].tensor_dim && a.roles[inner].place > a.roles[m].place) {
        settled &= ~(1U << inner);
      }
    }
  }
  return a.sharded & ~settled;
}

bool StateSpace::keeps_cuts(size_t from, size_t to) const {
  const ShardState& a = states_[from];
  const ShardState& b = states_[to];
  if ((a.sharded & ~b.sharded) != 0) return false;
  for (size_t m = 0; m < mesh_shape_.size(); ++m) {
    if (has(a.sharded, m) && !(a.roles[m] == b.roles[m])) return false;
  }
  return true;
}

}  // namespace shardway
