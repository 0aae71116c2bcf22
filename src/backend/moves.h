// How an agreed call moves and combines its bytes: out of the notes where all inputs came with them, else
// through the group's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/memory.h"
#include "backend/table.h"
#include "shm/group/group.h"

namespace shardway::backend {

// Which part of a rank's input is this rank's.
enum class Shares : uint8_t {
  whole,  // all of it is everybody's
  parts   // one part per rank, one behind the other
};

// One rank's side of an exchange: what it sends to each rank and where it puts what comes. Both by rank.
struct Exchange {
  Shares shares = Shares::whole;
  const std::byte* input = nullptr;
  int64_t input_bytes = 0;
  std::vector<Span> sends = {};
  Target to = {};
};

void run(shm::Group& group, const Heard& heard, const Exchange& exchange, int64_t element_bytes);

// The combination of all ranks' inputs, part r of it at rank r. `output` may be this rank's own part.
struct Reduction {
  const std::byte* input = nullptr;
  int64_t input_bytes = 0;
  std::vector<Span> parts = {};
  std::byte* output = nullptr;
  shm::Combine how = {};
};

void run(shm::Group& group, const Heard& heard, const Reduction& reduction);

// The combination of `bytes` at `memory` on all ranks, in its place on all of them.
void reduce_in_place(shm::Group& group, const Heard& heard, std::byte* memory, int64_t bytes,
                     const shm::Combine& how);

}  // namespace shardway::backend
