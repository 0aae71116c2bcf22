// The last calls in the format of torch's flight recorder, which torch's own analyser reads (torchfrtrace).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "record/reader.h"

namespace shardway::record {

// Where torch is told to leave such files: the value of TORCH_FR_DUMP_TEMP_FILE, or else of
// TORCH_NCCL_DEBUG_INFO_TEMP_FILE. Empty if neither is set.
std::string flight_record_prefix();

// Tells which ranks of the job a group of this process has, by their rank in the group. Not needed for a
// group whose ranks all run on this host.
void know_ranks(uint64_t group, std::vector<int64_t> job_ranks);

// The rank of a process in its job. Without a launcher: its rank in the largest group that it has called in.
int64_t job_rank_of(const ProcessRecord& process);

// A pickle of the flight recorder's version 2.10. `job` are the records of the job's processes on this host:
// they tell which ranks of the job a group has. Calls of a group whose ranks are not all known are left out.
// Torch's analyser takes only ops that it knows: ours are given the nearest name, and their own in a frame of
// the call's stack.
std::string flight_record_of(const ProcessRecord& process, std::span<const ProcessRecord> job);

// Writes the record of a process to the file `prefix` + its rank in the job, and returns the name of the
// file. Throws std::system_error.
std::string write_flight_record(const std::string& prefix, const ProcessRecord& process,
                                std::span<const ProcessRecord> job);

// The same for this process.
[[gnu::visibility("default")]] std::string write_own_flight_record(const std::string& prefix);

}  // namespace shardway::record
