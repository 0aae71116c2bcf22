// The steps of a path as a reader of a plan sees them.
#pragma once

#include "plan/search/search.h"
#include "shardway/plan.h"

namespace shardway {

Step step_of(const SearchProblem& problem, const PathStep& step);

// A path along given layouts, with every step priced; nothing if a step makes addends.
std::optional<PricedPath> path_along(SearchProblem& problem, const std::vector<Layout>& layouts);

// S0,R -all_gather(1)-> R,R
std::string text_of(const std::vector<Step>& steps, const Layout& from);

}  // namespace shardway
