// What a machine gives to ranks: cores, memory, pages, descriptors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/doctor/doctor_line.h"

namespace shardway::cli {

// Read once, so that tests can make up machines.
struct MachineFacts {
  int64_t online_cores = 1;
  int64_t allowed_cores = 1;
  std::optional<int64_t> core_quota = std::nullopt;  // of the control group
  int64_t physical_bytes = 0;
  int64_t available_bytes = 0;
  std::string huge_pages = {};                          // as the system writes it: "always [madvise] never"
  std::optional<int64_t> dev_shm_bytes = std::nullopt;  // free in /dev/shm; nothing where there is none
  int64_t numa_nodes = 1;
  int64_t open_files = 0;  // that a process may have
};

MachineFacts facts_of_this_machine();

DoctorLines machine_lines(const MachineFacts& facts);

}  // namespace shardway::cli
