// Words by which the streams of several processes wait for one another, in host memory that they share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/driver.h"

namespace shardway::cuda {

// Two counters from a writer to a waiter: how many calls' inputs the writer has ready, and in how many calls
// it has finished reading the waiter's input. The writer's streams write them, the waiter's streams wait for
// them; if the writer dies, the waiter's host writes them too.
struct FlagLine {
  std::atomic<uint32_t> ready;
  std::atomic<uint32_t> done;
  uint32_t unused[2];
};
static_assert(sizeof(FlagLine) == 16);

inline int64_t flag_bytes(int64_t ranks) { return ranks * ranks * int64_t{sizeof(FlagLine)}; }

// The lines of a group. The memory, of flag_bytes, is the same on every rank, and zero when the group is
// made.
class Flags {
 public:
  // Registers the memory with the driver, for every device. Throws DriverError.
  Flags(std::span<std::byte> memory, int64_t ranks);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  MemoryOp write_ready(int64_t waiter, int64_t writer, uint32_t value) const;
  MemoryOp wait_ready(int64_t waiter, int64_t writer, uint32_t value) const;
  MemoryOp write_done(int64_t waiter, int64_t writer, uint32_t value) const;
  MemoryOp wait_done(int64_t waiter, int64_t writer, uint32_t value) const;

  // Local, on any thread: lets every wait for this writer, up to this value, pass.
  void release(int64_t waiter, int64_t writer, uint32_t value) const;

 private:
  FlagLine& line(int64_t waiter, int64_t writer) const;
  DeviceAddress address(int64_t waiter, int64_t writer) const;

  std::span<std::byte> memory_;
  int64_t ranks_;
  DeviceAddress base_ = 0;
};

// Queues waits and writes in their order. Throws DriverError.
void queue(std::span<MemoryOp> ops, Stream stream);

}  // namespace shardway::cuda
