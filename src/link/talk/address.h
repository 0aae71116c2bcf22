// Where a link meets: tcp://host:port.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "shm/memory/file.h"

namespace shardway::link {

// When a wait ends.
using Instant = std::chrono::steady_clock::time_point;

struct LinkAddress {
  std::string host;
  int64_t port = 0;

  // Throws std::invalid_argument if the text is no address.
  static LinkAddress read(const std::string& text);

  // Returns a connection, whose reads and writes do not block. Throws std::system_error if nobody answers.
  shm::File dial(Instant deadline) const;

  // Throws std::system_error if another process listens there, or if this host does not have the address.
  shm::File listen() const;
};

std::string to_string(const LinkAddress& address);

// Messages leave at once, and a host that vanished without a word is noticed.
void tune(int socket);

// Waits until a socket is ready for `events` of poll. Returns whether it is, before the deadline.
bool is_ready_before(int socket, short events, Instant deadline);

}  // namespace shardway::link
