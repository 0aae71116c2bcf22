// Which addends meet on which part of the output.
#include <algorithm>
#include <map>

#include "shardway/route.h"

namespace shardway {
namespace {

// Pulls with the same box land together.
std::vector<Landing> by_equal_box(const Moves& pulls) {
  std::map<std::pair<Dims, Dims>, size_t> index_of;
  std::vector<Landing> landings;
  for (size_t i = 0; i < pulls.size(); ++i) {
    const Box& box = pulls[i].mine;
    if (box.volume() == 0) continue;
    const auto [entry, is_new] = index_of.try_emplace({box.offset, box.extent}, landings.size());
    if (is_new) landings.push_back({.box = box, .addends = {}});
    landings[entry->second].addends.push_back(
        {.pull = static_cast<int64_t>(i), .from = Box::whole(box.extent)});
  }
  return landings;
}

bool disjoint(std::vector<Landing>& landings) {
  // The boxes are sorted by their begin along dim 0, so a box can only meet those that begin before it ends.
  std::sort(landings.begin(), landings.end(),
            [](const Landing& a, const Landing& b) { return a.box.offset < b.box.offset; });
  for (size_t i = 0; i < landings.size(); ++i) {
    const Box& box = landings[i].box;
    for (size_t j = i + 1; j < landings.size(); ++j) {
      if (!box.offset.empty() && landings[j].box.offset[0] >= box.offset[0] + box.extent[0]) break;
      if (overlap(box, landings[j].box)) return false;
    }
  }
  return true;
}

// Cuts every landing along `dim` wherever another one begins or ends. Afterwards any two have the same
// interval along `dim`, or disjoint ones.
std::vector<Landing> cut_along(size_t dim, const std::vector<Landing>& landings) {
  std::vector<int64_t> borders;
  for (const Landing& landing : landings) {
    borders.push_back(landing.box.offset[dim]);
    borders.push_back(landing.box.offset[dim] + landing.box.extent[dim]);
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());

  std::vector<Landing> pieces;
  for (const Landing& landing : landings) {
    const int64_t begin = landing.box.offset[dim];
    const int64_t end = begin + landing.box.extent[dim];
    auto border = std::lower_bound(borders.begin(), borders.end(), begin);
    for (; *border < end; ++border) {
      const int64_t length = *(border + 1) - *border;
      Landing piece = landing;
      piece.box.offset[dim] = *border;
      piece.box.extent[dim] = length;
      for (Addend& addend : piece.addends) {
        addend.from.offset[dim] += *border - begin;
        addend.from.extent[dim] = length;
      }
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

std::vector<Landing> merged(std::vector<Landing> pieces) {
  std::map<std::pair<Dims, Dims>, Landing> by_box;
  for (Landing& piece : pieces) {
    Landing& landing = by_box[{piece.box.offset, piece.box.extent}];
    landing.box = piece.box;
    landing.addends.insert(landing.addends.end(), piece.addends.begin(), piece.addends.end());
  }
  std::vector<Landing> result;
  for (auto& [key, landing] : by_box) {
    std::sort(landing.addends.begin(), landing.addends.end(),
              [](const Addend& a, const Addend& b) { return a.pull < b.pull; });
    result.push_back(std::move(landing));
  }
  return result;
}

}  // namespace

std::vector<Landing> landings(const Route& route) {
  std::vector<Landing> result = by_equal_box(route.pulls);
  if (disjoint(result)) return result;
  for (size_t dim = 0; dim < route.output_shape.size(); ++dim) result = cut_along(dim, result);
  return merged(std::move(result));
}

bool reduces(const std::vector<Landing>& landings, const Route& route) {
  return route.divisor != 1 ||
         std::any_of(landings.begin(), landings.end(), [](const Landing& l) { return l.addends.size() > 1; });
}

bool fills_output(const std::vector<Landing>& landings, const Route& route) {
  int64_t landed = 0;
  for (const Landing& landing : landings) landed += landing.box.volume();
  return landed == Box::whole(route.output_shape).volume();
}

}  // namespace shardway
