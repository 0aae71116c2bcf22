#include <algorithm>
#include <sstream>

#include "shardway/route.h"

namespace shardway {

Box Box::whole(Dims shape) {
  Dims origin(shape.size());
  return {.offset = std::move(origin), .extent = std::move(shape)};
}

int64_t Box::volume() const {
  int64_t volume = 1;
  for (int64_t length : extent) volume *= length;
  return volume;
}

bool overlap(const Box& a, const Box& b) {
  for (size_t d = 0; d < a.offset.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.extent[d], b.offset[d] + b.extent[d]);
    if (begin >= end) return false;
  }
  return true;
}

bool contains(const Box& outer, const Box& inner) {
  for (size_t d = 0; d < outer.offset.size(); ++d) {
    if (inner.offset[d] < outer.offset[d]) return false;
    // Compare distances: the end of a box may overflow.
    if (inner.offset[d] - outer.offset[d] > outer.extent[d] - inner.extent[d]) return false;
  }
  return true;
}

std::string to_string(const Box& box) {
  std::ostringstream text;
  for (size_t d = 0; d < box.offset.size(); ++d) {
    int64_t end = 0;
    const bool is_past = __builtin_add_overflow(box.offset[d], box.extent[d], &end);
    text << (d == 0 ? "" : "×") << '[' << box.offset[d] << ',' << (is_past ? "…" : std::to_string(end))
         << ')';
  }
  return text.str();
}

}  // namespace shardway
