// The bytes that a call moves and combines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "c10d_calls/memory.h"
#include "shm/calls/contiguous.h"

namespace shardway::backend {

// One rank's side of an exchange: what it sends to each rank and where it puts what comes. Both by rank.
struct BytesExchange {
  std::span<const std::byte> input = {};
  std::vector<Span> sends = {};
  Target to = {};
};

shm::ContiguousCall contiguous_of(const BytesExchange& exchange, int64_t rank);

// The combination of all ranks' inputs, of which rank r gets part r. `output` may be this rank's own part.
struct PartsReduction {
  std::span<const std::byte> input = {};
  std::vector<Span> parts = {};
  std::byte* output = nullptr;
  shm::Combine how = {};
};

shm::ContiguousCall contiguous_of(const PartsReduction& reduction, int64_t rank);

}  // namespace shardway::backend
