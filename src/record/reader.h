// Reads the records of other processes. Nothing in them is trusted: any process of this user can make a file
// that looks like a record.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/record_file.h"
#include "record/recorded_call.h"
#include "shm/memory/file.h"
#include "shm/memory/process.h"

namespace shardway::record {

using shm::ProcessState;  // unknown: of a rank whose process is not known, while some process may be it
using shm::state_of;

struct ProcessRecord {
  int64_t pid = 0;
  ProcessState state = ProcessState::running;
  bool is_of_job = false;  // rank, size, job and launcher are known
  int64_t rank = 0;
  int64_t size = 1;
  std::string job = {};
  std::string launcher = {};
  std::vector<RecordedCall> calls = {};  // the newest last
};

// The lines of a record that are whole and make sense, the newest last. Lines that change at every look are
// left out.
std::vector<RecordedCall> calls_in(const RecordFile& file);

// What a file says, or nothing if it is no record: another size, not sealed, another magic or version, or a
// head that makes no sense. `pid` is left as the file has it, `state` is not set.
std::optional<ProcessRecord> record_in(const shm::File& file);

// The record that a process keeps of itself, found among its open files. Not one that it inherited.
std::optional<ProcessRecord> record_of(int64_t pid);

// Those of all processes of this user that this process can see, in the order of their numbers.
std::vector<ProcessRecord> all_records();

}  // namespace shardway::record
