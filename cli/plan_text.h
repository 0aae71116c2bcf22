// A plan for a terminal: the tensor's shards before and after, the steps, and why.
#pragma once

#include <string>

#include "cli/terminal.h"
#include "shardway/plan.h"

namespace shardway::cli {

std::string plan_text(const Plan& plan, const Terminal& terminal);

}  // namespace shardway::cli
