// What every rank, and every block of ranks, holds in a state.
#include <algorithm>
#include <cmath>

#include "plan/price/state_space.h"

namespace shardway {
namespace {

// How many parts are not empty if the cuts from `depth` on split an interval of this length.
int64_t filled_parts(const std::vector<Cut>& cuts, int64_t length, size_t depth = 0) {
  if (length == 0) return 0;
  if (depth == cuts.size()) return 1;
  const Cut& cut = cuts[depth];
  if (!cut.bounds.empty()) {
    int64_t filled = 0;
    for (int64_t i = 0; i < cut.parts; ++i)
      filled += filled_parts(cuts, cut.part({0, length}, i).length(), depth + 1);
    return filled;
  }
  const int64_t step = (length + cut.parts - 1) / cut.parts;
  return length / step * filled_parts(cuts, step, depth + 1) + filled_parts(cuts, length % step, depth + 1);
}

}  // namespace

void StateSpace::find_filled() {
  for (size_t index = 0; index < states_.size(); ++index) {
    double filled = static_cast<double>(positions_) / ranks_along(states_[index].sharded);
    for (size_t d = 0; d < shape_.size(); ++d)
      filled *= static_cast<double>(filled_parts(cuts_of(index, d), shape_[d]));
    filled_.push_back(filled);
  }
}

double StateSpace::total_volume(size_t index) const {
  double volume = static_cast<double>(positions_) / ranks_along(states_[index].sharded);
  for (const int64_t length : shape_) volume *= static_cast<double>(length);
  return volume;
}

void StateSpace::find_longest() {
  longest_.assign(states_.size() * shape_.size(), 0);
  largest_volumes_.assign(states_.size(), 1);
  for (size_t index = 0; index < states_.size(); ++index) {
    const ShardState& state = states_[index];
    double* longest = longest_.data() + index * shape_.size();
    std::copy(shape_.begin(), shape_.end(), longest);
    // The first part of a balanced cut is the longest; a ragged cut is the outermost and says its sizes.
    for (size_t m = 0; m < mesh_shape_.size(); ++m) {
      const int8_t ragged = state.roles[m].ragged;
      if (ragged < 0) continue;
      const std::vector<int64_t>& sizes = ragged_[static_cast<size_t>(ragged)].placement.sizes;
      longest[state.roles[m].tensor_dim] = static_cast<double>(*std::max_element(sizes.begin(), sizes.end()));
    }
    for (size_t m = 0; m < mesh_shape_.size(); ++m) {
      if (state.roles[m].tensor_dim < 0 || state.roles[m].ragged >= 0) continue;
      double& length = longest[state.roles[m].tensor_dim];
      length = std::ceil(length / static_cast<double>(mesh_shape_[m]));
    }
    for (size_t d = 0; d < shape_.size(); ++d) largest_volumes_[index] *= longest[d];
  }
}

Cut StateSpace::cut_of(const ShardState& state, size_t mesh_dim) const {
  Cut cut{.mesh_dim = static_cast<int64_t>(mesh_dim), .parts = mesh_shape_[mesh_dim]};
  const int8_t ragged = state.roles[mesh_dim].ragged;
  if (ragged >= 0) cut.bounds = bounds_of(ragged_[static_cast<size_t>(ragged)].placement.sizes);
  return cut;
}

bool StateSpace::covers(size_t from, size_t to) const {
  for (size_t d = 0; d < shape_.size(); ++d) {
    if (longest(from)[d] < longest(to)[d] && largest_volume(to) > 0) return false;
  }
  const auto all_lie_within = [](const StateBoxes& b, const StateBoxes& a) {
    for (size_t p = a.positions; p-- > 0;) {  // empty parts are at the end
      if (!lies_within(b, p, a, p)) return false;
    }
    return true;
  };
  if (!sample_.empty() && !all_lie_within(sampled(to), sampled(from))) return false;
  return all_lie_within(boxes(to), boxes(from));
}

const StateBoxes& StateSpace::boxes(size_t index) const {
  if (!boxes_[index]) boxes_[index] = std::make_unique<StateBoxes>(compute(states_[index], all_));
  return *boxes_[index];
}

const StateBoxes& StateSpace::sampled(size_t index) const {
  if (!sampled_[index]) sampled_[index] = std::make_unique<StateBoxes>(compute(states_[index], sample_));
  return *sampled_[index];
}

const Reach& StateSpace::reach(size_t index, size_t block, size_t number) const {
  auto& reaches = reaches_[block];
  if (reaches.empty()) reaches.resize(states_.size());
  if (reaches[index].empty()) reaches[index].resize(positions_ / block);
  auto& reach = reaches[index][number];
  if (!reach) reach = std::make_unique<Reach>(compute_reach(index, block, number));
  return *reach;
}

Reach StateSpace::compute_reach(size_t index, size_t block, size_t number) const {
  const StateBoxes& boxes = this->boxes(index);
  Reach reach;
  for (size_t d = 0; d < shape_.size(); ++d) {
    std::vector<Reach::Span> spans;
    for (size_t p = number * block; p < (number + 1) * block; ++p) {
      if (boxes.volumes[p] > 0) spans.push_back({boxes.begin_of(d)[p], boxes.end_of(d)[p]});
    }
    std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    std::vector<Reach::Span> merged;
    double length = 0;
    for (const Reach::Span& span : spans) {
      if (merged.empty() || merged.back().end < span.begin) {
        merged.push_back(span);
        length += span.end - span.begin;
      } else if (merged.back().end < span.end) {
        length += span.end - merged.back().end;
        merged.back().end = span.end;
      }
    }
    reach.volume *= length;
    reach.spans.push_back(std::move(merged));
  }
  return reach;
}

double common_volume(const StateBoxes& a, size_t at_a, const StateBoxes& b, size_t at_b) {
  double common = 1;
  for (size_t d = 0; d < a.tensor_dims; ++d) {
    const double begin = std::max(a.begin_of(d)[at_a], b.begin_of(d)[at_b]);
    const double end = std::min(a.end_of(d)[at_a], b.end_of(d)[at_b]);
    common *= std::max(0.0, end - begin);
  }
  return common;
}

bool lies_within(const StateBoxes& inner, size_t at_inner, const StateBoxes& outer, size_t at_outer) {
  return common_volume(inner, at_inner, outer, at_outer) == inner.volumes[at_inner];
}

double common_volume(const Reach& a, const Reach& b) {
  double volume = 1;
  for (size_t d = 0; d < a.spans.size(); ++d) {
    double length = 0;
    for (const Reach::Span& x : a.spans[d]) {
      for (const Reach::Span& y : b.spans[d]) {
        length += std::max(0.0, std::min(x.end, y.end) - std::max(x.begin, y.begin));
      }
    }
    volume *= length;
  }
  return volume;
}

StateBoxes StateSpace::compute(const ShardState& state, std::span<const size_t> positions) const {
  const size_t count = positions.size();
  StateBoxes boxes{.positions = count, .tensor_dims = shape_.size()};
  boxes.begins.assign(shape_.size() * count, 0);
  boxes.ends.resize(shape_.size() * count);
  boxes.volumes.assign(count, 1);
  for (size_t d = 0; d < shape_.size(); ++d) {
    double* begin = boxes.begins.data() + d * count;
    double* end = boxes.ends.data() + d * count;
    std::fill(end, end + count, static_cast<double>(shape_[d]));
    for (size_t place = 0; place < mesh_shape_.size(); ++place) {
      for (size_t m = 0; m < mesh_shape_.size(); ++m) {
        const ShardState::Role& role = state.roles[m];
        if (role.tensor_dim != static_cast<int8_t>(d) || role.place != place) continue;
        const Cut cut = cut_of(state, m);
        for (size_t i = 0; i < count; ++i) {
          const Interval whole{static_cast<int64_t>(begin[i]), static_cast<int64_t>(end[i])};
          const Interval part = cut.part(whole, coordinate(m, positions[i]));
          begin[i] = static_cast<double>(part.begin);
          end[i] = static_cast<double>(part.end);
        }
      }
    }
    for (size_t i = 0; i < count; ++i) boxes.volumes[i] *= end[i] - begin[i];
  }
  return boxes;
}

}  // namespace shardway
