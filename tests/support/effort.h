// How much a test tries.
#pragma once

#include <cstdint>

namespace shardway::testing {

// This many times in a Release build. A build with assertions, perhaps with sanitizers, is some twenty times
// slower and tries as much less.
constexpr int64_t tries(int64_t in_release) {
#ifdef NDEBUG
  return in_release;
#else
  return in_release < 20 ? 1 : in_release / 20;
#endif
}

}  // namespace shardway::testing
