// The transport of a process group: shared memory if its ranks turn out to be on one host.
#pragma once

#include <memory>

#include "transport/common/transport.h"
#include "transport/shm/shares_memory.h"

namespace c10d {
class ProcessGroup;
}

namespace shardway {

struct HostsTransport;

// A c10d backend whose ranks are on several hosts and have found out which share one: shardway's own calls
// use the same transport.
class SpansHosts {
 public:
  virtual ~SpansHosts() = default;
  virtual const HostsTransport& hosts_transport() = 0;
};

// A c10d backend that is a SharesMemory or SpansHosts lends what it has. Otherwise the first call, which is
// collective, finds out which ranks share a host. The answer is kept as long as the process group lives.
// SHARDWAY_TRANSPORT=shm, ipc or c10d, the same on every rank, decides instead.
std::shared_ptr<Transport> make_transport(c10::intrusive_ptr<c10d::ProcessGroup> group);

// Lets a process group use this memory of its ranks from its first call on, unless SHARDWAY_TRANSPORT=c10d.
void adopt(const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::shared_ptr<ShmEngine> engine);

// Leaves a process group that its last owner is about to release: peers that wait for this rank hear of it
// now, and not when the next group is seen. Does nothing if the group has other owners.
[[gnu::visibility("default")]] void leave_if_unowned(
    const c10::weak_intrusive_ptr<c10d::ProcessGroup>& group);

// Called in a child of fork, for a process group of its parent: from then on every call on the group throws
// in the child, whether or not the parent ever made one.
[[gnu::visibility("default")]] void disown(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace shardway
