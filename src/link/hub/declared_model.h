// What ranks declare, put together to a model, and two models compared: every difference, not the first.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "plan/text/json.h"

namespace shardway::link {

// What all ranks of a role declared. An entry is a layout in the form of link/model/layouts.h, with ranks of
// the role.
struct DeclaredModel {
  std::string role;
  std::vector<std::string> names;  // in the order in which they were declared
  std::unordered_map<std::string, Json> entries;
  std::unordered_map<std::string, std::vector<int64_t>> holders;  // who named it
  bool is_cast = false;
  std::set<std::string> refused;  // names that a rank gave with a tensor that is not right

  // float32[8,6] whole on role trainer ranks 0-2
  std::string text_of(const std::string& name) const;

  // The entries by name, in order.
  Json said() const;
};

// A model, and the problems in what the ranks said of it.
struct PutTogether {
  DeclaredModel model;
  std::vector<std::string> problems;
};

// The union of what the ranks said. Throws NotOurs, std::invalid_argument or Json::exception if a rank said
// what nobody should.
PutTogether put_together(const std::string& role, int64_t size, const std::map<int64_t, const Json*>& said);

// A name that a side gave with a tensor that is not right is in that side's problems, not missing.
std::vector<std::string> differences(const DeclaredModel& source, const DeclaredModel& target);

// An error of this many lines.
std::string told(const std::string& what, const std::vector<std::string>& lines);

// role trainer ranks 0-2,5
std::string ranks_text(const std::string& role, std::vector<int64_t> ranks);

}  // namespace shardway::link
