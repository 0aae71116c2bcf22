// The variables of the environment that shardway reads, and those that look as if it did.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/doctor_line.h"

namespace shardway::cli {

struct SetVariable {
  std::string name = {};
  std::string value = {};
};

// Those of this process whose names begin with SHARDWAY.
std::vector<SetVariable> variables_of_environment();

// A line for each that is unknown or has a value that shardway refuses, and for a topology. One line that all
// is well if there is none of these.
DoctorLines variable_lines(const std::vector<SetVariable>& variables);

}  // namespace shardway::cli
