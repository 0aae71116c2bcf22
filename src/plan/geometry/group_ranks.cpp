#include "plan/geometry/group_ranks.h"

#include <stdexcept>

#include "plan/geometry/number_text.h"

namespace shardway {

GroupRanks::GroupRanks(std::vector<int64_t> numbers) : numbers_(std::move(numbers)) {
  for (size_t rank = 0; rank < numbers_.size(); ++rank)
    rank_of_.emplace(numbers_[rank], static_cast<int64_t>(rank));
}

std::optional<int64_t> GroupRanks::rank_of(int64_t number) const {
  const auto found = rank_of_.find(number);
  return found == rank_of_.end() ? std::nullopt : std::optional(found->second);
}

void GroupRanks::check_cover(const Mesh& mesh) const {
  constexpr size_t kMostShown = 16;
  for (const int64_t number : mesh.ranks()) {
    if (rank_of_.contains(number)) continue;
    const bool all_fit = numbers_.size() <= kMostShown;
    const std::vector<int64_t> shown(numbers_.begin(),
                                     all_fit ? numbers_.end() : numbers_.begin() + kMostShown);
    throw std::invalid_argument("the mesh " + to_string(mesh) + " has rank " + std::to_string(number) +
                                ", but the group has the ranks " + join(shown, ",") +
                                (all_fit ? "" : ",..."));
  }
}

}  // namespace shardway
