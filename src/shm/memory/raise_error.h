// What a call of the system left in errno, thrown.
#pragma once

#include <cerrno>
#include <system_error>

namespace shardway::shm {

[[noreturn]] inline void raise_error(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace shardway::shm
