// The file that says on which hosts `shardway launch` starts ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/launch/launch_call.h"

namespace shardway::cli {

// Each line is a host and how many ranks it takes, as mpirun has it: "node-a", "node-a:4" or "node-a
// slots=4". What follows a # is a remark. Throws std::invalid_argument naming file and line.
std::vector<LaunchHost> read_host_file(const std::string& path);

// The first hosts with so many ranks together; all of them if `ranks` is 0. Throws std::invalid_argument if
// there are not so many.
std::vector<LaunchHost> hosts_of(const std::vector<LaunchHost>& found, int64_t ranks);

}  // namespace shardway::cli
