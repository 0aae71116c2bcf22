// Any c10d process group as a transport.
#pragma once

#include <memory>

#include "transport/c10d/backend_mail.h"
#include "transport/common/call_queue.h"
#include "transport/common/transport.h"

namespace c10d {
class ProcessGroup;
}

namespace shardway {

// `queue` and `room` are shared by all transports of this process group.
std::shared_ptr<Transport> make_c10d_transport(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                               std::shared_ptr<CallQueue> queue, MailRoom room);

}  // namespace shardway
