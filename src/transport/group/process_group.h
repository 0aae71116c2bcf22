// The transport of a process group: shared memory where its ranks turn out to be on one host.
#pragma once

#include <memory>

#include "transport/common/transport.h"

namespace c10d {
class ProcessGroup;
}

namespace shardway {

class ShmEngine;

// A c10d backend whose ranks share memory already: shardway's own calls use the same.
class SharesMemory {
 public:
  virtual ~SharesMemory() = default;

  // Null once the group is destroyed.
  virtual std::shared_ptr<ShmEngine> shm_engine() = 0;
};

// Whether the ranks share a host is found out at the first call, which is collective, and remembered for as
// long as the process group lives. SHARDWAY_TRANSPORT=shm or c10d, the same on every rank, decides instead.
std::shared_ptr<Transport> make_transport(c10::intrusive_ptr<c10d::ProcessGroup> group);

// In a child of fork, of a process group of its parent's: every call of it throws there, whether or not the
// parent made one.
[[gnu::visibility("default")]] void disown(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace shardway
