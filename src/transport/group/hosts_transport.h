// The transport of ranks that have found out which of them share a host.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shm/group/hosts.h"
#include "transport/c10d/mail.h"
#include "transport/common/call_queue.h"
#include "transport/common/transport.h"

namespace shardway {

struct HostsTransport {
  std::shared_ptr<Transport> transport = nullptr;
  // Ends the group because of what happened to this rank: all others raise.
  std::function<void(const std::string& why)> give_up = {};
  // Leaves the group of this host: whoever waits for this rank there raises.
  std::function<void()> leave = {};
  // The other ranks of this host that have died or left.
  std::function<std::vector<int64_t>()> gone = {};
};

// The host of each rank in words: "host 1 (node-b)".
std::vector<std::string> hosts_in_words(const shm::HostGroups& groups);

// Warns once if ranks of one host share no memory. See TwoLevelOptions for `may_use_thread`.
HostsTransport make_hosts_transport(const shm::HostGroups& groups, const std::shared_ptr<MailOffice>& between,
                                    std::shared_ptr<CallQueue> queue, std::chrono::milliseconds timeout,
                                    bool may_use_thread = true);

}  // namespace shardway
