// A lower bound on paths, by the node before the target.
#pragma once

#include <vector>

#include "plan/search/numbering.h"

namespace shardway {

// Every path has a last step. The path up to it and the step itself each cost their own busiest rank, so
// their bounds add up. One thread at a time.
class LastSteps {
 public:
  LastSteps(SearchProblem& problem, const Numbering& numbering) : problem_(problem), numbering_(numbering) {}

  // A bound on any path from a node to the target: the least over all nodes that may come before the target.
  Femtoseconds bound_from(const Node& node);

 private:
  struct LastStep {
    Femtoseconds bound = 0;
    Node before = {};
  };

  void find();

  SearchProblem& problem_;
  const Numbering& numbering_;
  std::vector<LastStep> steps_;  // the cheapest first; found when first asked for
};

}  // namespace shardway
