#include "plan/geometry/overlaps.h"

#include <utility>

namespace shardway {

Overlaps overlaps_with(const Layout& layout, const Box& box) {
  return overlaps_with(layout, box, Pins(static_cast<size_t>(layout.mesh().ndim()), kAnyIndex));
}

Overlaps overlaps_with(const Layout& layout, const Box& box, const Pins& pins) {
  Overlaps result;
  for (int64_t dim = 0; dim < layout.ndim(); ++dim) {
    const auto d = static_cast<size_t>(dim);
    result.push_back(overlapping_parts(layout.shape()[d], cuts_of(layout, dim),
                                       {box.offset[d], box.offset[d] + box.extent[d]}, pins));
  }
  return result;
}

std::vector<int64_t> distances_along(const Mesh& mesh, const std::vector<int64_t>& dims) {
  std::vector<int64_t> distances{0};
  for (const int64_t dim : dims) {
    std::vector<int64_t> longer;
    longer.reserve(distances.size() * static_cast<size_t>(mesh.size(dim)));
    for (const int64_t distance : distances) {
      for (int64_t i = 0; i < mesh.size(dim); ++i) longer.push_back(distance + i * mesh.stride(dim));
    }
    distances = std::move(longer);
  }
  return distances;
}

int64_t position_along(const Mesh& mesh, const std::vector<int64_t>& coordinate,
                       const std::vector<int64_t>& dims) {
  int64_t position = 0;
  for (const int64_t dim : dims) position += coordinate[static_cast<size_t>(dim)] * mesh.stride(dim);
  return position;
}

}  // namespace shardway
