// What a process says when a peer of a group was lost.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "record/diagnosis.h"

namespace shardway::record {

// A group as the records of this process's job on this host tell it. `elsewhere` are ranks of the group that
// are known to run on other hosts.
GroupView view_from_here(uint64_t id, int64_t size, std::span<const int64_t> elsewhere);

// Prints one block to standard error: `why`, who saw it, and what every rank of the group is doing. Every
// line begins with "shardway:". Prints nothing where SHARDWAY_QUIET is set to anything but 0. Where torch is
// told to leave the files of its flight recorder, this process's last calls are left there too.
void report_loss(const std::string& why, int64_t rank, const GroupView& group);

}  // namespace shardway::record
