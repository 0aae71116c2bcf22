// The nodes of a search problem by number.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/search/search_problem.h"

namespace shardway {

// First the states of the source's mesh, each with every subset of the source's Partial dims that the target
// does not keep; then the states of the target's mesh.
class Numbering {
 public:
  explicit Numbering(const SearchProblem& problem) : problem_(problem) {
    const DimMask resolvable = problem.source().partial & ~problem.target().partial;
    for (DimMask part = resolvable;; part = (part - 1) & resolvable) {
      partials_.push_back(part | problem.target().partial);
      if (part == 0) break;
    }
    on_source_ = problem.space(false).size() * partials_.size();
    size_ = on_source_ + (problem.target().is_on_target_mesh ? problem.space(true).size() : 0);
  }

  size_t size() const { return size_; }

  Node node(size_t number) const {
    if (number >= on_source_) return {.is_on_target_mesh = true, .state = number - on_source_};
    return {.state = number / partials_.size(), .partial = partials_[number % partials_.size()]};
  }

  size_t number_of(const Node& node) const {
    if (node.is_on_target_mesh) return on_source_ + node.state;
    const auto part = std::find(partials_.begin(), partials_.end(), node.partial) - partials_.begin();
    return node.state * partials_.size() + static_cast<size_t>(part);
  }

  // A mesh dim cannot shard and hold addends at once.
  bool exists(const Node& node) const {
    return (problem_.space(node.is_on_target_mesh).state(node.state).sharded & node.partial) == 0;
  }

 private:
  const SearchProblem& problem_;
  std::vector<DimMask> partials_;
  size_t on_source_ = 0;
  size_t size_ = 0;
};

}  // namespace shardway
