// Unix sockets whose names live in the kernel, in this network namespace, and vanish with the socket.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <string>

#include "shm/memory/file.h"

namespace shardway::shm {

// Both throw std::system_error.
File listen_at(const std::string& name);
File connect_to(const std::string& name, std::chrono::milliseconds patience);

// Returns who is at the other end according to the kernel; the pid is 0 if the process is not in this pid
// namespace. Throws std::runtime_error if it belongs to another user.
ucred checked_peer(const File& connection);

}  // namespace shardway::shm
