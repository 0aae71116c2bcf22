// The process in which an object was made. A child of fork inherits the object but must not use it: the
// threads it relies on do not exist in the child.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>

#include "shm/memory/process.h"

namespace shardway {

class HomeProcess {
 public:
  void leave() { generation_ = kNowhere; }

  bool is_this() const { return generation_ == shm::fork_generation(); }

  // Throws c10::DistBackendError in any other process. To be called before any lock is taken.
  void check() const {
    TORCH_CHECK_WITH(DistBackendError, is_this(), "the group belongs to the process that forked this one");
  }

 private:
  static constexpr uint64_t kNowhere = ~uint64_t{0};

  uint64_t generation_ = shm::fork_generation();
};

}  // namespace shardway
