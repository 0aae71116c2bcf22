#include "cli/nearest.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace shardway::cli {
namespace {

// How many letters have to be put in, taken out or replaced. Row by row: distances[j] is that of the letters
// of `a` so far to the first j of `b`.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> distances(b.size() + 1);
  std::iota(distances.begin(), distances.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(distances[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = distances[j + 1];
      distances[j + 1] = std::min({replaced, distances[j] + 1, diagonal + 1});
    }
  }
  return distances.back();
}

}  // namespace

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::string written = lower_case(word);
  size_t least = (written.size() + 2) / 3 + 1;  // a third of its letters may be wrong
  const std::string* nearest = nullptr;
  for (const std::string& candidate : known) {
    const size_t found = distance(written, lower_case(candidate));
    if (found < least) {
      least = found;
      nearest = &candidate;
    }
  }
  return nearest == nullptr || written.size() < 2 ? "" : " (did you mean " + *nearest + "?)";
}

}  // namespace shardway::cli
