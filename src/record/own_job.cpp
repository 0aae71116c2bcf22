#include "record/own_job.h"

#include <unistd.h>

#include <algorithm>

#include "record/diagnosis.h"

namespace shardway::record {

std::vector<ProcessRecord> records_of_own_job() {
  const std::vector<ProcessRecord> records = all_records();
  std::vector<ProcessRecord> own;
  for (const JobView& job : jobs_in(records)) {
    const auto is_own = [](const ProcessRecord* record) { return record->pid == getpid(); };
    if (std::none_of(job.processes.begin(), job.processes.end(), is_own)) continue;
    for (const ProcessRecord* record : job.processes) own.push_back(*record);
  }
  return own;
}

}  // namespace shardway::record
