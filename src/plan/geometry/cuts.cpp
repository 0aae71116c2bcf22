#include "plan/geometry/cuts.h"

namespace shardway {
namespace {

// The parts of `cut` that may overlap `wanted`: a range, since parts lie one after the other.
struct PartRange {
  int64_t first = 0;
  int64_t last = -1;
};

PartRange parts_near(const Cut& cut, Interval whole, Interval wanted) {
  if (!cut.bounds.empty()) {
    const auto after = std::upper_bound(cut.bounds.begin(), cut.bounds.end(), wanted.begin);
    const auto end = std::lower_bound(cut.bounds.begin(), cut.bounds.end(), wanted.end);
    return {after - cut.bounds.begin() - 1, end - cut.bounds.begin() - 1};
  }
  const int64_t step = (whole.length() + cut.parts - 1) / cut.parts;
  if (step == 0) return {};
  return {(wanted.begin - whole.begin) / step,
          std::min(cut.parts, (wanted.end - 1 - whole.begin) / step + 1) - 1};
}

struct Collector {
  const std::vector<Cut>& cuts;
  Interval wanted;
  const Pins& pins;
  std::vector<OverlappingPart> found = {};

  void descend(Interval whole, size_t depth = 0, int64_t place = 0) {
    const Interval overlap = common(whole, wanted);
    if (overlap.length() == 0) return;
    if (cuts.empty()) return add(whole, place);
    const Cut& cut = cuts[depth];
    PartRange range = parts_near(cut, whole, overlap);
    const int64_t pin = pins[static_cast<size_t>(cut.mesh_dim)];
    if (pin != kAnyIndex) range = {std::max(range.first, pin), std::min(range.last, pin)};
    const Parts parts(cut, whole);
    const bool is_last = depth + 1 == cuts.size();
    for (int64_t i = range.first; i <= range.last; ++i) {
      is_last ? add(parts[i], place + i * cut.stride) : descend(parts[i], depth + 1, place + i * cut.stride);
    }
  }

  void add(Interval part, int64_t place) {
    const Interval overlap = common(part, wanted);
    if (overlap.length() > 0) found.push_back({.place = place, .part = part, .overlap = overlap});
  }
};

}  // namespace

std::vector<int64_t> bounds_of(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> bounds{0};
  for (const int64_t size : sizes) bounds.push_back(bounds.back() + size);
  return bounds;
}

std::vector<Cut> cuts_of(const Layout& layout, int64_t tensor_dim) {
  std::vector<Cut> cuts;
  for (const int64_t mesh_dim : layout.order()[static_cast<size_t>(tensor_dim)]) {
    Cut cut{.mesh_dim = mesh_dim,
            .parts = layout.mesh().size(mesh_dim),
            .stride = layout.mesh().stride(mesh_dim)};
    const Placement& placement = layout.placements()[static_cast<size_t>(mesh_dim)];
    if (placement.is_ragged()) cut.bounds = bounds_of(placement.sizes);
    cuts.push_back(std::move(cut));
  }
  return cuts;
}

Interval interval_at(int64_t length, const std::vector<Cut>& cuts, const std::vector<int64_t>& coordinate) {
  Interval interval{0, length};
  for (const Cut& cut : cuts) interval = cut.part(interval, coordinate[static_cast<size_t>(cut.mesh_dim)]);
  return interval;
}

std::vector<OverlappingPart> overlapping_parts(int64_t length, const std::vector<Cut>& cuts, Interval wanted,
                                               const Pins& pins) {
  Collector collector{.cuts = cuts, .wanted = wanted, .pins = pins};
  int64_t most = 1;
  for (const Cut& cut : cuts) {
    if (pins[static_cast<size_t>(cut.mesh_dim)] == kAnyIndex) most *= cut.parts;
  }
  collector.found.reserve(static_cast<size_t>(std::min(most, wanted.length())));
  collector.descend({0, length});
  return std::move(collector.found);
}

}  // namespace shardway
