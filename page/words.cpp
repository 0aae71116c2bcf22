#include "page/words.h"

#include <algorithm>

namespace shardway::page {
namespace {

// The ranks that a mesh dim holds.
std::string ranks_along(const Mesh& mesh, size_t dim) {
  if (!mesh.names().empty()) return mesh.names()[dim];
  return mesh.ndim() == 1 ? "the ranks" : "mesh dim " + std::to_string(dim);
}

std::string words_of(const Placement& placement, const std::string& ranks) {
  if (placement.is_replicate()) return "the same over " + ranks;
  if (placement.is_shard()) {
    return "dim " + std::to_string(placement.dim) + " split over " + ranks +
           (placement.is_ragged() ? " in given lengths" : "");
  }
  if (placement.op == Op::sum) return "addends over " + ranks;
  return std::string("values to combine by ") + name_of(placement.op) + " over " + ranks;
}

}  // namespace

std::string words_of(const Layout& layout) {
  const auto& placements = layout.placements();
  if (std::all_of(placements.begin(), placements.end(), [](const Placement& p) { return p.is_replicate(); }))
    return "the same on every rank";
  std::string text;
  for (size_t dim = 0; dim < placements.size(); ++dim) {
    text += (text.empty() ? "" : ", ") + words_of(placements[dim], ranks_along(layout.mesh(), dim));
  }
  return text;
}

}  // namespace shardway::page
