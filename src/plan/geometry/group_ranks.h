// The ranks of a group, and the numbers that a mesh has for them.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "shardway/layout.h"

namespace shardway {

// The ranks of a group by the numbers that meshes know them by.
class [[gnu::visibility("default")]] GroupRanks {
 public:
  // The mesh numbers of group ranks 0, 1, …
  explicit GroupRanks(std::vector<int64_t> numbers);

  int64_t size() const { return static_cast<int64_t>(numbers_.size()); }
  const std::vector<int64_t>& numbers() const { return numbers_; }
  int64_t number_of(int64_t rank) const { return numbers_[static_cast<size_t>(rank)]; }
  std::optional<int64_t> rank_of(int64_t number) const;

  // Throws std::invalid_argument naming the first rank of the mesh that is not in the group.
  void check_cover(const Mesh& mesh) const;

 private:
  std::vector<int64_t> numbers_;
  std::unordered_map<int64_t, int64_t> rank_of_;
};

}  // namespace shardway
