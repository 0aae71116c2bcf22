// Blocks of all ranks of a group that spans hosts.
#pragma once

#include <cstdint>

#include "plan/hosts/host_map.h"
#include "transport/c10d/mail.h"
#include "transport/common/transport.h"

namespace shardway {

// See Transport::all_gather_block. The blocks of a host go in one message from its first rank to that of each
// other host, and from there through the memory of the host.
Blocks all_gather_block_by_hosts(const at::Tensor& mine, int64_t row_bytes, const HostMap& hosts,
                                 Transport& inside, const MailOffice::Opened& between,
                                 const Subject& subject);

}  // namespace shardway
