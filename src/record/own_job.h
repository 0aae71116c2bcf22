// The processes that this one works with.
#pragma once

#include <vector>

#include "record/reader.h"

namespace shardway::record {

// The records of the job that this process is of, on this host, by rank. Empty if this process keeps none.
std::vector<ProcessRecord> records_of_own_job();

}  // namespace shardway::record
