#include "cuda/flags.h"

#include <algorithm>

namespace shardway::cuda {
namespace {

constexpr unsigned kForEveryDevice = 1;  // CU_MEMHOSTREGISTER_PORTABLE
constexpr unsigned kMapped = 2;          // CU_MEMHOSTREGISTER_DEVICEMAP
constexpr size_t kMostOps = 256;         // that the driver takes at once
constexpr DeviceAddress kDone = sizeof(uint32_t);
constexpr uint32_t kFarAhead = uint32_t{1} << 30;

MemoryOp op(MemoryOp::Kind kind, DeviceAddress address, uint32_t value) {
  return {.kind = kind, .address = address, .value = value};
}

}  // namespace

Flags::Flags(std::span<std::byte> memory, int64_t ranks)
    : memory_(memory.first(static_cast<size_t>(ranks) * sizeof(FlagLine))) {
  const Driver& driver = Driver::instance();
  driver.check(
      driver.functions().cuMemHostRegister(memory_.data(), memory_.size(), kForEveryDevice | kMapped),
      "register the group's flags");
  driver.check(driver.functions().cuMemHostGetDevicePointer(&base_, memory_.data(), 0),
               "find the group's flags");
}

Flags::~Flags() { Driver::instance().functions().cuMemHostUnregister(memory_.data()); }

FlagLine& Flags::line(int64_t rank) const { return reinterpret_cast<FlagLine*>(memory_.data())[rank]; }

DeviceAddress Flags::address(int64_t rank) const {
  return base_ + static_cast<DeviceAddress>(rank) * sizeof(FlagLine);
}

MemoryOp Flags::write_ready(int64_t rank, uint32_t value) const {
  return op(MemoryOp::Kind::write, address(rank), value);
}

MemoryOp Flags::wait_ready(int64_t rank, uint32_t value) const {
  return op(MemoryOp::Kind::wait, address(rank), value);
}

MemoryOp Flags::write_done(int64_t rank, uint32_t value) const {
  return op(MemoryOp::Kind::write, address(rank) + kDone, value);
}

MemoryOp Flags::wait_done(int64_t rank, uint32_t value) const {
  return op(MemoryOp::Kind::wait, address(rank) + kDone, value);
}

// Relaxed: the waiter is a stream, and nothing that it reads afterwards counts any more.
void Flags::release(int64_t rank, uint32_t value) const {
  FlagLine& released = line(rank);
  released.ready.store(value + kFarAhead, std::memory_order_relaxed);
  released.done.store(value + kFarAhead, std::memory_order_relaxed);
}

// Relaxed: nothing else is read because of it.
bool Flags::is_released(int64_t rank, uint32_t value) const {
  const uint32_t ahead = line(rank).ready.load(std::memory_order_relaxed) - value;
  return ahead > kFarAhead / 2 && ahead < kFarAhead + kFarAhead / 2;
}

void queue(std::span<MemoryOp> ops, Stream stream) {
  const Driver& driver = Driver::instance();
  while (!ops.empty()) {
    const size_t count = std::min(ops.size(), kMostOps);
    driver.check(driver.functions().cuStreamBatchMemOp(stream, static_cast<unsigned>(count), ops.data(), 0),
                 "queue waits between processes");
    ops = ops.subspan(count);
  }
}

}  // namespace shardway::cuda
