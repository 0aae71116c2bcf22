// The record of calls of another process, of any bytes: its beginning; the rest is zeros.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "record/diagnosis.h"
#include "record/flight_record.h"

namespace {

using namespace shardway;
using namespace shardway::record;

shm::File file_of(const uint8_t* data, size_t size) {
  shm::File file = shm::new_memory_file(kFileName);
  shm::set_size(file, sizeof(RecordFile));
  const shm::Mapping mapping(file, sizeof(RecordFile), shm::Mapping::Access::write);
  std::memcpy(mapping.data(), data, std::min(size, sizeof(RecordFile)));
  // What a fuzzer would have to guess first.
  std::memcpy(mapping.data(), &kMagic, sizeof(kMagic));
  std::memcpy(mapping.data() + offsetof(RecordHead, version), &kVersion, sizeof(kVersion));
  shm::seal(file, shm::Writers::anybody);
  return file;
}

void require_printable(const std::string& text) {
  for (const char c : text) {
    if (c != '\n' && (c < ' ' || c > '~')) abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto record = record_in(file_of(data, size));
  if (!record) return 0;
  if (record->calls.size() > kLines) abort();
  const std::vector<ProcessRecord> records = {*record};
  for (const JobView& job : jobs_in(records)) {
    require_printable(job.name + job.launcher);
    for (const GroupView& group : job.groups) {
      require_printable(text_of(group, 0));
      for (const Finding& finding : findings_in(group, INT64_MAX)) require_printable(finding.text);
    }
  }
  if (!flight_record_of(*record, records).ends_with('.')) abort();
  return 0;
}
