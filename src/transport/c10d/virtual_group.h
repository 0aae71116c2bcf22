// A process group that has no c10d::Backend, such as one written in Python, as a transport.
#pragma once

#include <memory>
#include <optional>

#include "transport/common/call_queue.h"
#include "transport/common/ledger.h"
#include "transport/common/transport.h"

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace shardway {

// Returns the group's backend for this device, or its default backend if no device is given; null if there is
// none.
c10::intrusive_ptr<c10d::Backend> backend_of(c10d::ProcessGroup& group,
                                             std::optional<c10::DeviceType> device = std::nullopt);

// Whether a group of several ranks can be reached only by its own methods.
[[gnu::visibility("default")]] bool is_virtual(c10d::ProcessGroup& group);

// A transport on the group's own allgather and alltoall_base. If the group lacks them, calls throw
// c10::ValueError, the same on every rank.
std::shared_ptr<Transport> make_virtual_transport(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                  std::shared_ptr<CallQueue> queue,
                                                  std::shared_ptr<Ledger> ledger);

}  // namespace shardway
