// Words by which the streams of several processes wait for one another, in host memory that they share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/driver.h"

namespace shardway::cuda {

// What a rank tells the streams of all others: in how many calls its input was ready, and in how many it has
// finished reading the others' inputs. Its own streams write them; if it dies, the others' hosts write them
// too.
struct alignas(64) FlagLine {
  std::atomic<uint32_t> ready;
  std::atomic<uint32_t> done;
};

// The lines of a group, one for each rank. The memory is the same on every rank, and zero when the group is
// made. Counters wrap; half of all values lie ahead of a value.
class Flags {
 public:
  // Registers the memory with the driver, for every device. Throws DriverError.
  Flags(std::span<std::byte> memory, int64_t ranks);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  MemoryOp write_ready(int64_t rank, uint32_t value) const;
  MemoryOp wait_ready(int64_t rank, uint32_t value) const;
  MemoryOp write_done(int64_t rank, uint32_t value) const;
  MemoryOp wait_done(int64_t rank, uint32_t value) const;

  // Local, on any thread: lets every wait for this rank pass, up to this value and far beyond.
  void release(int64_t rank, uint32_t value) const;

  // Whether any rank has released the waits for this one, which has not come to much more than this value
  // itself.
  bool is_released(int64_t rank, uint32_t value) const;

 private:
  FlagLine& line(int64_t rank) const;
  DeviceAddress address(int64_t rank) const;

  std::span<std::byte> memory_;
  DeviceAddress base_ = 0;
};

// Queues waits and writes in their order. Throws DriverError.
void queue(std::span<MemoryOp> ops, Stream stream);

}  // namespace shardway::cuda
