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

// What a rank and one that takes from it tell each other's streams in calls that a CUDA graph repeats. Values
// are constants there, so these words do not count: who has waited for one lowers it again.
struct PairWords {
  std::atomic<uint32_t> is_ready;  // the input may be read
  std::atomic<uint32_t> is_read;   // the input may be overwritten
};

// The lines of a group, one for each rank, and the words of each pair. The memory is the same on every rank,
// and zero when the group is made. Counters wrap; half of all values lie ahead of a value.
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

  enum class Signal { input_is_ready, input_is_read };
  struct Pair {
    int64_t owner = 0;  // of the input
    int64_t taker = 0;
  };
  MemoryOp raise(Signal signal, Pair pair) const;
  MemoryOp await(Signal signal, Pair pair) const;
  MemoryOp lower(Signal signal, Pair pair) const;

  // Local, on any thread: lets every wait for this rank pass, up to this value and far beyond.
  void release(int64_t rank, uint32_t value) const;

  // Whether any rank has released the waits for this one, which has not come to much more than this value
  // itself.
  bool is_released(int64_t rank, uint32_t value) const;

 private:
  FlagLine& line(int64_t rank) const;
  PairWords& words(Pair pair) const;
  DeviceAddress address(int64_t rank) const;
  DeviceAddress address(Signal signal, Pair pair) const;

  int64_t ranks_;
  std::span<std::byte> memory_;
  DeviceAddress base_ = 0;
};

// Queues waits and writes in their order. Throws DriverError.
void queue(std::span<MemoryOp> ops, Stream stream);

}  // namespace shardway::cuda
