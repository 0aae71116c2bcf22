// What a process knows of itself and of the machine it runs on.
#pragma once

#include <sched.h>

#include <cstdint>
#include <span>

#include "shm/file.h"

namespace shardway::shm {

// How many forks lie between this process and the first that asked: what was made under another number
// belongs to a parent. No system call.
uint64_t fork_generation();

// A file that is readable once this process has ended. Throws std::system_error.
File handle_of_process();

// Bytes that can still be had: the least of MemAvailable and what the control groups leave.
int64_t available_memory_bytes();

// All of the machine's memory.
int64_t physical_memory_bytes();

// The cores that this process may run on, and how many of them its control group pays for (-1: all).
cpu_set_t allowed_cores();
int64_t core_quota();

// Whether each of the processes, which may run on these cores and are paid this many, can have a core.
bool every_rank_has_a_core(std::span<const cpu_set_t> allowed, std::span<const int64_t> quotas);

}  // namespace shardway::shm
