// What one rank moves in a route in two levels, in bytes.
#pragma once

#include <cstdint>

#include "plan/hosts/two_levels.h"
#include "shardway/layout.h"

namespace shardway {

// Between hosts every move is a message. Inside a host ranks read one another's memory: whoever receives does
// the work.
struct TwoLevelLoad {
  // Inside the host, to and from other ranks of it.
  int64_t sent_inside = 0;
  int64_t received_inside = 0;
  int64_t peers_read = 0;  // call by call

  // Between hosts.
  int64_t sent_across = 0;
  int64_t received_across = 0;
  int64_t messages_sent = 0;
  int64_t messages_received = 0;

  int64_t copied = 0;    // inside the rank: its own part, and what is packed and unpacked
  int64_t combined = 0;  // read as addends, its own among them
  int64_t staging = 0;   // memory beside input and output

  int64_t sent() const { return sent_inside + sent_across; }
  int64_t received() const { return received_inside + received_across; }
};

// Sums of f16 and bf16 are made and cross in f32. `plan` is made for elements of this dtype.
TwoLevelLoad load_of(const TwoLevels& plan, DType dtype);

}  // namespace shardway
