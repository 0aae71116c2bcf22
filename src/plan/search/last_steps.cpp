#include "plan/search/last_steps.h"

#include <algorithm>

namespace shardway {

Femtoseconds LastSteps::bound_from(const Node& node) {
  if (steps_.empty()) find();
  Femtoseconds least = kNever;
  for (const LastStep& last : steps_) {
    if (last.bound >= least) break;
    if (last.before == node) {
      least = last.bound;
    } else if (problem_.leads(node, last.before)) {
      Femtoseconds before = problem_.rough_bound_of_path(node, last.before);
      if (last.bound + before >= least) continue;
      before = std::max(before, problem_.bound_of_path(node, last.before));
      least = std::min(least, last.bound + before);
    }
  }
  return least;
}

void LastSteps::find() {
  const Node& target = problem_.target();
  for (size_t number = 0; number < numbering_.size(); ++number) {
    const Node node = numbering_.node(number);
    if (!numbering_.exists(node) || !problem_.leads(node, target)) continue;
    LastStep last{.bound = problem_.bound_of(node, target), .before = node};
    if (SearchProblem::combines_in_place(node, target))
      last.bound = std::min(last.bound, problem_.bound_of_all_reduce(node, target));
    steps_.push_back(last);
  }
  std::sort(steps_.begin(), steps_.end(),
            [](const LastStep& a, const LastStep& b) { return a.bound < b.bound; });
}

}  // namespace shardway
