#include "plan/search/last_steps.h"

#include <algorithm>

namespace shardway {

Femtoseconds LastSteps::floor_from(const Node& node) {
  if (steps_.empty()) find();
  Femtoseconds least = kNever;
  for (const LastStep& last : steps_) {
    if (last.floor >= least) break;
    if (last.before == node) {
      least = last.floor;
    } else if (ground_.leads(node, last.before)) {
      Femtoseconds before = ground_.rough_floor_of_path(node, last.before);
      if (last.floor + before >= least) continue;
      before = std::max(before, ground_.floor_of_path(node, last.before));
      least = std::min(least, last.floor + before);
    }
  }
  return least;
}

void LastSteps::find() {
  const Node& target = ground_.target();
  for (size_t number = 0; number < numbering_.size(); ++number) {
    const Node node = numbering_.node(number);
    if (!numbering_.exists(node) || !ground_.leads(node, target)) continue;
    LastStep last{.floor = ground_.floor_of(node, target), .before = node};
    if (Ground::combines_in_place(node, target))
      last.floor = std::min(last.floor, ground_.floor_of_all_reduce(node, target));
    steps_.push_back(last);
  }
  std::sort(steps_.begin(), steps_.end(),
            [](const LastStep& a, const LastStep& b) { return a.floor < b.floor; });
}

}  // namespace shardway
