// How reports name the ranks of a group that is a part of another, such as the ranks of one host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardway::record {

struct PartNames {
  std::vector<int64_t> numbers = {};  // by rank in the part: its rank in the whole
  std::string place = {};             // "host 1 (node-b) of a group of 4 ranks"
};

// Any thread may call these.
void know_part(uint64_t group, PartNames names);
void forget_part(uint64_t group);

// Nothing for a group that is no part.
std::optional<PartNames> part_names_of(uint64_t group);

}  // namespace shardway::record
