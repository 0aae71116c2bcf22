// The parts of a layout that overlap a box, and the mesh positions that hold them.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/geometry/cuts.h"

namespace shardway {

// Per tensor dim, the parts of a layout that overlap a box.
using Overlaps = std::vector<std::vector<OverlappingPart>>;

Overlaps overlaps_with(const Layout& layout, const Box& box);
Overlaps overlaps_with(const Layout& layout, const Box& box, const Pins& pins);

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
std::vector<int64_t> distances_along(const Mesh& mesh, const std::vector<int64_t>& dims);

// The position of a coordinate whose other dims are set to 0.
int64_t position_along(const Mesh& mesh, const std::vector<int64_t>& coordinate,
                       const std::vector<int64_t>& dims);

}  // namespace shardway
