// Routes of CPU tensors between several hosts: through memory inside a host, by messages between hosts.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "plan/hosts/host_map.h"
#include "transport/c10d/mail.h"
#include "transport/common/call_queue.h"
#include "transport/common/transport.h"

namespace shardway {

struct TwoLevelOptions {
  HostMap hosts;
  std::shared_ptr<Transport> inside;    // of the ranks of this host, in their order
  std::shared_ptr<MailOffice> between;  // of all ranks
  std::shared_ptr<CallQueue> queue;     // of the calls of the group
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  std::function<void()> leave_host = {};  // ends the group of this host: its other ranks raise
  // Whether asynchronous calls may run on a thread of the queue. If not, they are over when they return.
  bool may_use_thread = true;
};

// Addends are combined host by host: first those of each host in rank order, then the hosts in the order of
// their first ranks. f16 and bf16 are combined in f32 throughout and rounded once. So the bits of a result
// depend on which ranks share a host, and on nothing else.
std::shared_ptr<Transport> make_two_level_transport(TwoLevelOptions options);

}  // namespace shardway
