// The cheapest path between two layouts through the states of their state spaces.
#pragma once

#include <optional>
#include <vector>

#include "plan/search/search_problem.h"

namespace shardway {

struct PathStep {
  Node before = {};
  Node after = {};
  bool is_all_reduce = false;
  Price price = {};
  int64_t peak_bytes = 0;
};

struct PricedPath {
  std::vector<PathStep> steps = {};
  Femtoseconds cost = 0;
  int64_t bytes = 0;  // the sum of what each step's busiest sender sends
};

struct SearchResult {
  std::optional<PricedPath> best = {};
  std::vector<PricedPath> others = {};  // complete paths that were priced and lost, the cheapest first
  size_t layouts = 0;                   // that could be passed through
  size_t priced = 0;                    // steps
};

// The path of least (cost, steps, bytes, text of its layouts). If max_bytes allows none, `best` is empty.
SearchResult search(SearchProblem& problem, std::optional<int64_t> max_bytes);

// The least max_bytes with which there is a path.
int64_t least_bytes(const SearchProblem& problem);

}  // namespace shardway
