// The process groups that this process has used, and what it knows of each.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <unordered_map>
#include <vector>

#include "shm/memory/fork_mutex.h"
#include "transport/c10d/backend_mail.h"
#include "transport/common/call_queue.h"
#include "transport/common/home_process.h"
#include "transport/common/transport.h"
#include "transport/group/engine_calls.h"

namespace shardway {

// What this process knows of a process group: whether it was decided how its ranks communicate, the transport
// of CPU tensors if there is a better one than c10d's, and what its messages need. It ends when this rank
// leaves the group.
struct KnownGroup {
  ~KnownGroup() { room.lifelines->leave(); }

  std::mutex mutex;
  bool is_decided = false;
  bool has_failed = false;            // the decision failed: it is unknown what other ranks were told
  std::shared_ptr<Transport> better;  // in shared memory, or in two levels; null: c10d alone
  std::shared_ptr<Transport> ipc;     // of CUDA tensors between ranks that share a GPU, if it is used
  std::function<void(const std::string&)> give_up;  // in two levels: ends the group for all ranks
  std::function<std::vector<int64_t>()> gone;       // in two levels: ranks of this host that died or left
  std::shared_ptr<CallQueue> queue = std::make_shared<CallQueue>();
  MailRoom room = make_mail_room();
  std::once_flag has_calls;
  std::shared_ptr<EngineCalls> calls;
  HomeProcess home;
};

// By process group. The weak pointers do not keep a group alive, but keep its address from being reused. Any
// thread may call.
class KnownGroups {
 public:
  static KnownGroups& instance();

  std::shared_ptr<KnownGroup> of(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

  void forget(const c10::weak_intrusive_ptr<c10d::ProcessGroup>& group);
  void forget_gone();

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
    std::shared_ptr<KnownGroup> known;
  };

  std::vector<Entry> take_gone();

  shm::ForkMutex mutex_;
  std::unordered_map<c10d::ProcessGroup*, Entry> entries_;
};

}  // namespace shardway
