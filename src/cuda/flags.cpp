#include "cuda/flags.h"

#include <algorithm>

namespace shardway::cuda {
namespace {

constexpr unsigned kForEveryDevice = 1;  // CU_MEMHOSTREGISTER_PORTABLE
constexpr unsigned kMapped = 2;          // CU_MEMHOSTREGISTER_DEVICEMAP
constexpr size_t kMostOps = 256;         // that the driver takes at once
constexpr DeviceAddress kDone = sizeof(uint32_t);

MemoryOp op(MemoryOp::Kind kind, DeviceAddress address, uint32_t value) {
  return {.kind = kind, .address = address, .value = value};
}

}  // namespace

Flags::Flags(std::span<std::byte> memory, int64_t ranks) : memory_(memory), ranks_(ranks) {
  const Driver& driver = Driver::instance();
  driver.check(
      driver.functions().cuMemHostRegister(memory_.data(), memory_.size(), kForEveryDevice | kMapped),
      "register the group's flags");
  driver.check(driver.functions().cuMemHostGetDevicePointer(&base_, memory_.data(), 0),
               "find the group's flags");
}

Flags::~Flags() { Driver::instance().functions().cuMemHostUnregister(memory_.data()); }

FlagLine& Flags::line(int64_t waiter, int64_t writer) const {
  return reinterpret_cast<FlagLine*>(memory_.data())[waiter * ranks_ + writer];
}

DeviceAddress Flags::address(int64_t waiter, int64_t writer) const {
  return base_ + static_cast<DeviceAddress>(waiter * ranks_ + writer) * sizeof(FlagLine);
}

MemoryOp Flags::write_ready(int64_t waiter, int64_t writer, uint32_t value) const {
  return op(MemoryOp::Kind::write, address(waiter, writer), value);
}

MemoryOp Flags::wait_ready(int64_t waiter, int64_t writer, uint32_t value) const {
  return op(MemoryOp::Kind::wait, address(waiter, writer), value);
}

MemoryOp Flags::write_done(int64_t waiter, int64_t writer, uint32_t value) const {
  return op(MemoryOp::Kind::write, address(waiter, writer) + kDone, value);
}

MemoryOp Flags::wait_done(int64_t waiter, int64_t writer, uint32_t value) const {
  return op(MemoryOp::Kind::wait, address(waiter, writer) + kDone, value);
}

// Relaxed: the waiter is a stream, and nothing that it reads afterwards counts any more.
void Flags::release(int64_t waiter, int64_t writer, uint32_t value) const {
  FlagLine& released = line(waiter, writer);
  released.ready.store(value, std::memory_order_relaxed);
  released.done.store(value, std::memory_order_relaxed);
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
