// The one or two tensor dims that are shown.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "shardway/plan.h"

namespace shardway::page {

using Rect = std::array<int64_t, 4>;  // x, y, width, height in elements

class Frame {
 public:
  explicit Frame(const Plan& plan) : shape_(plan.from.shape()) {
    std::set<size_t> dims;
    const auto add = [&](const Layout& layout) {
      for (size_t dim = 0; dim < shape_.size() && dims.size() < 2; ++dim) {
        if (!layout.order()[dim].empty()) dims.insert(dim);
      }
    };
    add(plan.from);
    add(plan.to);
    for (const Step& step : plan.steps) add(step.to);
    for (size_t dim = shape_.size(); dim-- > 0 && dims.size() < 2;) dims.insert(dim);
    if (dims.empty()) return;
    across_ = *dims.rbegin();
    if (dims.size() == 2) down_ = *dims.begin();
  }

  std::optional<size_t> down() const { return down_; }
  std::optional<size_t> across() const { return across_; }
  int64_t width() const { return across_ ? shape_[*across_] : 1; }
  int64_t height() const { return down_ ? shape_[*down_] : 1; }

  Rect rect_of(const Box& box) const {
    return {across_ ? box.offset[*across_] : 0, down_ ? box.offset[*down_] : 0,
            across_ ? box.extent[*across_] : 1, down_ ? box.extent[*down_] : 1};
  }

 private:
  std::vector<int64_t> shape_;
  std::optional<size_t> down_;
  std::optional<size_t> across_;
};

// The smallest rectangle around both.
inline Rect around(const Rect& a, const Rect& b) {
  const int64_t x = std::min(a[0], b[0]);
  const int64_t y = std::min(a[1], b[1]);
  return {x, y, std::max(a[0] + a[2], b[0] + b[2]) - x, std::max(a[1] + a[3], b[1] + b[3]) - y};
}

// What both have in common; width or height is 0 if that is nothing.
inline Rect common(const Rect& a, const Rect& b) {
  const int64_t x = std::max(a[0], b[0]);
  const int64_t y = std::max(a[1], b[1]);
  return {x, y, std::max<int64_t>(std::min(a[0] + a[2], b[0] + b[2]) - x, 0),
          std::max<int64_t>(std::min(a[1] + a[3], b[1] + b[3]) - y, 0)};
}

}  // namespace shardway::page
