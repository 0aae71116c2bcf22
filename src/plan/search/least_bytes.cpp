#include <algorithm>
#include <functional>
#include <queue>

#include "plan/search/numbering.h"
#include "plan/search/search.h"

namespace shardway {

int64_t least_bytes(const SearchProblem& problem) {
  const Numbering numbering(problem);
  const size_t target = numbering.number_of(problem.target());
  std::vector<int64_t> least(numbering.size(), INT64_MAX);
  std::vector<bool> is_done(numbering.size(), false);
  using Entry = std::pair<int64_t, size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  queue.emplace(0, numbering.number_of(problem.source()));
  while (!queue.empty()) {
    const auto [bytes, number] = queue.top();
    queue.pop();
    if (number == target) return bytes;
    if (is_done[number]) continue;
    is_done[number] = true;
    const Node before = numbering.node(number);
    for (size_t next = 0; next < numbering.size(); ++next) {
      const Node after = numbering.node(next);
      if (is_done[next] || !numbering.exists(after) || !problem.leads(before, after)) continue;
      int64_t step = problem.peak_bytes_of(before, after, false);
      if (problem.combines_in_place(before, after))
        step = std::min(step, problem.peak_bytes_of(before, after, true));
      const int64_t peak = std::max(bytes, step);
      if (peak < least[next]) {
        least[next] = peak;
        queue.emplace(peak, next);
      }
    }
  }
  return least[target];
}

}  // namespace shardway
