// Unix sockets whose names live in the kernel, in this network namespace, and end with them.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <string>

#include "shm/memory/file.h"

namespace shardway::shm {

// Both throw std::system_error.
File listen_at(const std::string& name);
File connect_to(const std::string& name, std::chrono::milliseconds patience);

// Who is at the other end, by the kernel's word; the pid is 0 when it is not in our namespace. Throws
// std::runtime_error where it belongs to another user.
ucred checked_peer(const File& connection);

}  // namespace shardway::shm
