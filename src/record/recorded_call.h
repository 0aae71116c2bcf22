// A call as the record tells it.
#pragma once

#include <cstdint>
#include <string>

namespace shardway::record {

enum class CallState : uint8_t { running, done, failed };

struct RecordedCall {
  uint64_t order = 0;   // of all calls of the process: newer is greater
  uint64_t number = 0;  // of the calls of the group; 0: the group was made
  std::string op = {};
  uint64_t group = 0;  // the same on all ranks of the group
  int64_t rank = 0;    // in the group
  int64_t size = 1;
  int64_t bytes = 0;
  CallState state = CallState::running;
  int64_t begun_ns = 0;         // now_ns() of then
  int64_t ended_ns = 0;         // 0: not yet
  bool may_span_hosts = false;  // ranks of the group may be on other hosts, out of sight
};

}  // namespace shardway::record
