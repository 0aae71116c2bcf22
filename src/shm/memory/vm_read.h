// Reading another process's private memory.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace shardway::shm {

// Copies from an address of another process. Gives 0, or the errno of what went wrong.
int vm_read(pid_t process, uint64_t address, std::byte* to, int64_t bytes);

}  // namespace shardway::shm
