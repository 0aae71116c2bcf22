#include "cuda/flags.h"

#include <algorithm>

namespace shardway::cuda {
namespace {

constexpr unsigned kForEveryDevice = 1;  // CU_MEMHOSTREGISTER_PORTABLE
constexpr unsigned kMapped = 2;          // CU_MEMHOSTREGISTER_DEVICEMAP
constexpr size_t kMostOps = 256;         // that the driver takes at once
constexpr DeviceAddress kDone = sizeof(uint32_t);
constexpr uint32_t kFarAhead = uint32_t{1} << 30;
constexpr uint32_t kRaised = 1;

size_t bytes_for(int64_t ranks) {
  return static_cast<size_t>(ranks) * (sizeof(FlagLine) + static_cast<size_t>(ranks) * sizeof(PairWords));
}

MemoryOp op(MemoryOp::Kind kind, DeviceAddress address, uint32_t value) {
  return {.kind = kind, .address = address, .value = value};
}

}  // namespace

Flags::Flags(std::span<std::byte> memory, int64_t ranks)
    : ranks_(ranks), memory_(memory.first(bytes_for(ranks))) {
  const Driver& driver = Driver::instance();
  driver.check(
      driver.functions().cuMemHostRegister(memory_.data(), memory_.size(), kForEveryDevice | kMapped),
      "register the group's flags");
  driver.check(driver.functions().cuMemHostGetDevicePointer(&base_, memory_.data(), 0),
               "find the group's flags");
}

Flags::~Flags() { Driver::instance().functions().cuMemHostUnregister(memory_.data()); }

FlagLine& Flags::line(int64_t rank) const { return reinterpret_cast<FlagLine*>(memory_.data())[rank]; }

PairWords& Flags::words(Pair pair) const {
  auto* first = reinterpret_cast<PairWords*>(&line(ranks_));
  return first[pair.owner * ranks_ + pair.taker];
}

DeviceAddress Flags::address(int64_t rank) const {
  return base_ + static_cast<DeviceAddress>(rank) * sizeof(FlagLine);
}

DeviceAddress Flags::address(Signal signal, Pair pair) const {
  const PairWords& both = words(pair);
  const auto& word = signal == Signal::input_is_ready ? both.is_ready : both.is_read;
  return base_ + static_cast<DeviceAddress>(reinterpret_cast<const std::byte*>(&word) - memory_.data());
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

MemoryOp Flags::raise(Signal signal, Pair pair) const {
  return op(MemoryOp::Kind::write, address(signal, pair), kRaised);
}

MemoryOp Flags::await(Signal signal, Pair pair) const {
  return op(MemoryOp::Kind::wait, address(signal, pair), kRaised);
}

MemoryOp Flags::lower(Signal signal, Pair pair) const {
  return op(MemoryOp::Kind::write, address(signal, pair), 0);
}

// Relaxed: the waiter is a stream, and nothing that it reads afterwards counts any more.
void Flags::release(int64_t rank, uint32_t value) const {
  FlagLine& released = line(rank);
  released.ready.store(value + kFarAhead, std::memory_order_relaxed);
  released.done.store(value + kFarAhead, std::memory_order_relaxed);
  for (int64_t peer = 0; peer < ranks_; ++peer) {
    words({.owner = rank, .taker = peer}).is_ready.store(kRaised, std::memory_order_relaxed);
    words({.owner = peer, .taker = rank}).is_read.store(kRaised, std::memory_order_relaxed);
  }
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
