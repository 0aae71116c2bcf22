// Allocations on a device that processes show one another.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "cuda/driver.h"

namespace shardway::cuda {

// What another process needs to read an allocation. The driver numbers allocations: an address may come back
// with other memory behind it, a number does not.
struct AllocationName {
  uint64_t number = 0;  // 0: none
  IpcHandle handle = {};
  int64_t bytes = 0;
};

// Allocations of this process that were shown to others. The device must be current in every call.
class Exports {
 public:
  struct Shown {
    AllocationName allocation;
    int64_t offset = 0;
  };

  // Where the byte at this address lies. Throws DriverError if its memory cannot be shared.
  Shown place_of(DeviceAddress address);

  // Whether the allocation of this number was shown and still is there.
  bool is_shown(uint64_t number) const;

  // The number of an allocation that was shown and has been freed since, once; 0 if there is none. Looks at
  // one allocation in each call.
  uint64_t next_freed();

  // Whether next_freed() would return one. Otherwise looks at another allocation in the next call.
  bool has_freed();

 private:
  struct Exported {
    AllocationName name;
    DeviceAddress base = 0;
  };

  std::map<uint64_t, Exported>::iterator next_shown();

  std::map<uint64_t, Exported> shown_;  // by number
  uint64_t looked_at_ = 0;
};

// Allocations of one peer, mapped into this process. The device must be current in every call.
class Imports {
 public:
  Imports() = default;
  Imports(const Imports&) = delete;
  Imports& operator=(const Imports&) = delete;

  // The allocation of rank `owner` as this process sees it. Throws DriverError.
  DeviceAddress open(const AllocationName& name, int64_t owner);

  // Gives up an allocation that its owner has freed, and all of them.
  void close(uint64_t number);
  void close_all();

 private:
  std::unordered_map<uint64_t, DeviceAddress> opened_;  // by number
};

}  // namespace shardway::cuda
