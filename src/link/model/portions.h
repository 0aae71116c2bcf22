// Which tensors of a role come together, if they go to functions. Every rank of every role finds the same
// from the declarations alone.
#pragma once

#include <cstdint>
#include <map>

#include "plan/text/json.h"

namespace shardway::link {

// The field of an entry that has the bytes of a function's buffer.
inline constexpr const char* kMaxBytes = "max_bytes";

// What the pieces of the ranks of a role take on their way to functions, by rank: as they come, and as they
// are handed over if the dtype changes. Throws std::invalid_argument or Json::exception if an entry is
// invalid.
std::map<int64_t, int64_t> piece_bytes(const Json& published, const Json& subscribed);

// Numbers the exchanges. What has a destination of its own comes in exchange 0. What goes to functions comes
// in 1, 2, …: those together that fit into the least of their buffers on every rank.
class PortionCounter {
 public:
  // Called for each tensor in the order in which the role declares them.
  int64_t next(const Json& published, const Json& subscribed);

 private:
  bool fits(const std::map<int64_t, int64_t>& pieces);

  int64_t number_ = 0;
  int64_t limit_ = 0;
  std::map<int64_t, int64_t> held_;  // bytes by rank
};

}  // namespace shardway::link
