// What every transport must do: one list of checks for all of them.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace shardway {
class Group;
}

namespace shardway::testing {

// A claim about execute() on a group. `run` is collective: every rank calls it with its own Group, any
// number of ranks will do. It throws when the claim does not hold.
struct Check {
  std::string name;
  void (*run)(const Group& group);
};

inline std::ostream& operator<<(std::ostream& out, const Check& check) { return out << check.name; }

// The whole contract, and its parts.
const std::vector<Check>& transport_contract();
std::vector<Check> checks_of_moves();
std::vector<Check> checks_of_reductions();
std::vector<Check> checks_of_refusals();

// Throws std::invalid_argument when there is none of that name.
const Check& check_named(const std::string& name);

}  // namespace shardway::testing
