// Those whose ranks share memory: groups of several kinds.
#pragma once

#include <memory>

namespace shardway {

class ShmEngine;

class SharesMemory {
 public:
  virtual ~SharesMemory() = default;

  // Null if the ranks share no memory, if they have not found out yet, and once the group is destroyed.
  virtual std::shared_ptr<ShmEngine> shm_engine() = 0;
};

}  // namespace shardway
