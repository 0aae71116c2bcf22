#include "page/tiles.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace shardway::page {
namespace {

constexpr int64_t kMostRows = 8;
constexpr int64_t kMostColumns = 16;
constexpr int64_t kFolded = 8;  // columns where no mesh dim fits

// Groups of coordinates along each mesh dim. The longest dim is halved until there are few enough.
std::vector<int64_t> groups_along(const Mesh& mesh, int64_t most) {
  std::vector<int64_t> groups = mesh.shape();
  const auto count = [&] {
    return std::accumulate(groups.begin(), groups.end(), int64_t{1}, std::multiplies<>());
  };
  while (count() > most) {
    int64_t& longest = *std::max_element(groups.begin(), groups.end());
    longest = (longest + 1) / 2;
  }
  return groups;
}

// The innermost mesh dim lies across, and further ones if there were too many rows. A long dim is folded.
int64_t columns_for(const std::vector<int64_t>& groups) {
  int64_t rows = std::accumulate(groups.begin(), groups.end(), int64_t{1}, std::multiplies<>());
  int64_t columns = 1;
  for (size_t dim = groups.size(); dim-- > 0 && (columns == 1 || rows > kMostRows);) {
    if (columns * groups[dim] > kMostColumns) return kFolded;
    columns *= groups[dim];
    rows /= groups[dim];
  }
  return columns;
}

void place(Tiling& tiling, std::vector<RankTile> tiles, int64_t columns) {
  const int64_t first_row = tiling.rows;
  for (size_t i = 0; i < tiles.size(); ++i) {
    tiles[i].row = first_row + static_cast<int64_t>(i) / columns;
    tiles[i].column = static_cast<int64_t>(i) % columns;
    std::sort(tiles[i].ranks.begin(), tiles[i].ranks.end());
    for (const int64_t rank : tiles[i].ranks) {
      tiling.tile_of_rank[static_cast<size_t>(rank)] = static_cast<int64_t>(tiling.tiles.size());
    }
    tiling.ranks += static_cast<int64_t>(tiles[i].ranks.size());
    tiling.rows = tiles[i].row + 1;
    tiling.columns = std::max(tiling.columns, tiles[i].column + 1);
    tiling.tiles.push_back(std::move(tiles[i]));
  }
}

// The tiles of a mesh, row-major; those of ranks that are placed already are left out.
std::vector<RankTile> tiles_of(const Mesh& mesh, const std::vector<int64_t>& groups, const Tiling& placed) {
  std::vector<RankTile> tiles(
      static_cast<size_t>(std::accumulate(groups.begin(), groups.end(), int64_t{1}, std::multiplies<>())));
  for (int64_t position = 0; position < mesh.size(); ++position) {
    const int64_t rank = mesh.ranks()[static_cast<size_t>(position)];
    if (placed.tile_of_rank[static_cast<size_t>(rank)] >= 0) continue;
    const std::vector<int64_t> coordinate = mesh.coordinate_at(position);
    int64_t index = 0;
    for (size_t dim = 0; dim < groups.size(); ++dim) {
      index = index * groups[dim] + coordinate[dim] * groups[dim] / mesh.shape()[dim];
    }
    tiles[static_cast<size_t>(index)].ranks.push_back(rank);
  }
  std::erase_if(tiles, [](const RankTile& tile) { return tile.ranks.empty(); });
  return tiles;
}

}  // namespace

Tiling tiling_of(const Plan& plan, int64_t most) {
  Tiling tiling;
  int64_t largest = 0;
  for (const Mesh* mesh : {&plan.from.mesh(), &plan.to.mesh()}) {
    largest = std::max(largest, *std::max_element(mesh->ranks().begin(), mesh->ranks().end()));
  }
  tiling.tile_of_rank.assign(static_cast<size_t>(largest) + 1, -1);
  for (const Mesh* mesh : {&plan.from.mesh(), &plan.to.mesh()}) {
    const std::vector<int64_t> groups = groups_along(*mesh, most);
    place(tiling, tiles_of(*mesh, groups, tiling), columns_for(groups));
  }
  return tiling;
}

}  // namespace shardway::page
