// Runs a check with each set of loops that this machine has.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "shm/kernels/isa.h"

namespace shardway::shm::testing {

template <class Check>
void on_every_isa(const Check& check) {
  const Isa before = current_isa();
  for (const Isa isa : kEveryIsa) {
    if (!supports(isa)) continue;
    SCOPED_TRACE("isa " + std::to_string(static_cast<int>(isa)));
    force_isa(isa);
    check();
    force_isa(before);
  }
}

inline std::vector<std::byte> random_bytes(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() >> 56);
  return bytes;
}

}  // namespace shardway::shm::testing
