// A bound from below on paths by the node before the target.
#pragma once

#include <vector>

#include "plan/search/numbering.h"
#include "plan/search/search.h"

namespace shardway {

// Every path has a last step: what leads to it and the step itself have busiest ranks of their own, so that
// their floors add up. One thread at a time.
class LastSteps {
 public:
  LastSteps(Ground& ground, const Numbering& numbering) : ground_(ground), numbering_(numbering) {}

  // Of any path from a node to the target: the least over all nodes that may come before the target.
  Femtoseconds floor_from(const Node& node);

 private:
  struct LastStep {
    Femtoseconds floor = 0;
    Node before = {};
  };

  void find();

  Ground& ground_;
  const Numbering& numbering_;
  std::vector<LastStep> steps_;  // the cheapest first; found when first asked for
};

}  // namespace shardway
