// A running job for `shardway status`: as a table for people, as JSON for programs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "record/diagnosis.h"

namespace shardway::cli {

// The findings in all groups of a job: empty if all is well.
std::vector<record::Finding> findings_of(const record::JobView& job, int64_t now);

std::string job_text(const record::JobView& job, const Terminal& terminal, int64_t now);

nlohmann::ordered_json job_json(const record::JobView& job, int64_t now);

}  // namespace shardway::cli
