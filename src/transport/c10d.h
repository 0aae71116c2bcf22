// Any c10d process group as a transport.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace c10d {
class ProcessGroup;
}

namespace shardway {

std::shared_ptr<Transport> make_c10d_transport(c10::intrusive_ptr<c10d::ProcessGroup> group);

}  // namespace shardway
