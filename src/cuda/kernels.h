// The kernels of one device, loaded when they are first needed.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "cuda/driver.h"
#include "cuda/move_table.h"
#include "shm/kernels/reduce.h"

namespace shardway::cuda {

// The device must be current in every call, and must outlive this object.
class DeviceKernels {
 public:
  explicit DeviceKernels(const Device& device) : device_(device) {}

  // Loads what launch() will need. May wait for work of this process on the device. Throws DriverError.
  void load(std::span<const MoveTable> tables, const std::optional<shm::Combine>& how);

  // Queues the moves of the tables, which are `tables_of` the same `how`. Throws DriverError.
  void launch(std::span<const MoveTable> tables, const std::optional<shm::Combine>& how, Stream stream);

 private:
  // What distinguishes kernels: copies have no element.
  struct Key {
    int table_bytes = 0;
    int unit_bytes = 0;
    int element = -1;
    int op = -1;
    bool divides = false;

    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(const MoveTable& table, const std::optional<shm::Combine>& how);

  const Device& device_;
  std::map<Key, Function> functions_;  // of modules that are never unloaded
};

}  // namespace shardway::cuda
