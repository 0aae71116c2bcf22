// What a process knows about itself and about the machine it runs on.
#pragma once

#include <sched.h>

#include <array>
#include <cstdint>
#include <span>

#include "shm/memory/file.h"

namespace shardway::shm {

// How many forks lie between this process and the first that asked. What was made under another number
// belongs to a parent. Makes no system call.
uint64_t fork_generation();

// A file that is readable once this process has ended. Throws std::system_error.
File handle_of_process();

// The number of the process that such a file stands for, as this process sees it; 0 if it has ended or is out
// of sight.
int64_t pid_of(const File& process);

// Whether the process with this handle has ended. Does not wait.
bool has_ended(const File& process);

// By the letters of /proc/PID/stat. A zombie counts as ended: it has given all but its number back. Unknown
// is for who does not know which process it is.
enum class ProcessState : uint8_t { running, sleeping, stopped, ended, unknown };
ProcessState state_of(int64_t pid);

// Tells which ranks can meet at a socket: those of one running system and of one network namespace in it.
// Zero where the system does not say.
struct HostMark {
  std::array<char, 40> boot = {};
  uint64_t network = 0;

  bool operator==(const HostMark&) const = default;
};
HostMark host_mark();

// Whether both marks are known and stand for different hosts. A process without a descriptor left cannot read
// its own.
bool are_apart(const HostMark& a, const HostMark& b);

// "on this host", "on another host" or "in another network namespace of this host".
const char* place_of(const HostMark& theirs, const HostMark& own);

// Bytes that can still be allocated: the least of MemAvailable and what the control groups leave.
int64_t available_memory_bytes();

// All of the machine's memory.
int64_t physical_memory_bytes();

// The cores that this process may run on, and how many of them its control group pays for (-1: all).
cpu_set_t allowed_cores();
int64_t core_quota();

// Whether each process can have a core of its own, given the cores it may run on and the quotas.
bool every_rank_has_a_core(std::span<const cpu_set_t> allowed, std::span<const int64_t> quotas);

}  // namespace shardway::shm
