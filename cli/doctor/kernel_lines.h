// What ranks need of the kernel, tried: memory files, process handles, descriptors sent over sockets; and two
// ranks that call one another through shared memory.
#pragma once

#include <chrono>

#include "cli/doctor/doctor_line.h"

namespace shardway::cli {

DoctorLines kernel_lines();

// Starts two processes that join, exchange known values and check them. They are ended when `limit` has
// passed.
DoctorLine shared_memory_line(std::chrono::milliseconds limit);

}  // namespace shardway::cli
