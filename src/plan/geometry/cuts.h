// How one tensor dim is cut by the mesh dims that shard it, the outermost first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shardway/layout.h"

namespace shardway {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t length() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

inline Interval common(Interval a, Interval b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Part `index` of an interval that torch.chunk splits in `parts`.
inline Interval chunk_of(Interval whole, int64_t parts, int64_t index) {
  const int64_t step = (whole.length() + parts - 1) / parts;
  const int64_t begin = std::min(whole.begin + step * index, whole.end);
  return {begin, std::min(begin + step, whole.end)};
}

// One cut: over `parts` ranks along `mesh_dim`, equal as torch.chunk makes them, or at the given bounds.
struct Cut {
  int64_t mesh_dim = 0;
  int64_t parts = 1;
  int64_t stride = 1;                // positions of the mesh from one part to the next
  std::vector<int64_t> bounds = {};  // parts + 1 of them when ragged

  Interval part(Interval whole, int64_t index) const {
    if (bounds.empty()) return chunk_of(whole, parts, index);
    return {bounds[static_cast<size_t>(index)], bounds[static_cast<size_t>(index) + 1]};
  }
};

// The parts that a cut makes of one interval.
class Parts {
 public:
  Parts(const Cut& cut, Interval whole)
      : cut_(cut), whole_(whole), step_((whole.length() + cut.parts - 1) / cut.parts) {}

  Interval operator[](int64_t index) const {
    if (!cut_.bounds.empty()) return cut_.part(whole_, index);
    const int64_t begin = std::min(whole_.begin + step_ * index, whole_.end);
    return {begin, std::min(begin + step_, whole_.end)};
  }

 private:
  const Cut& cut_;
  Interval whole_;
  int64_t step_;
};

// Where parts of these sizes begin and end.
std::vector<int64_t> bounds_of(const std::vector<int64_t>& sizes);

// The cuts of a tensor dim in a layout.
std::vector<Cut> cuts_of(const Layout& layout, int64_t tensor_dim);

// What the cuts leave to a coordinate of the mesh.
Interval interval_at(int64_t length, const std::vector<Cut>& cuts, const std::vector<int64_t>& coordinate);

// A part that overlaps some interval. `place` is the mesh position of its indices along the cuts.
struct OverlappingPart {
  int64_t place = 0;
  Interval part = {};
  Interval overlap = {};
};

// Per mesh dim the one index that counts, or kAnyIndex.
using Pins = std::vector<int64_t>;
inline constexpr int64_t kAnyIndex = -1;

// The non-empty parts that overlap `wanted`, in order, in time proportional to their number.
std::vector<OverlappingPart> overlapping_parts(int64_t length, const std::vector<Cut>& cuts, Interval wanted,
                                               const Pins& pins);

}  // namespace shardway
