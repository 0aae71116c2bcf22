// Any bytes are a greeting of a rank, or are refused. What is read is written with the same bytes.
#include <cstdlib>
#include <cstring>

#include "shm/join/greeting.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto greeting = shardway::shm::greeting_of(bytes);
  if (!greeting) return 0;
  const shardway::shm::GreetingBytes written = shardway::shm::bytes_of(*greeting);
  if (written.size() != size || std::memcmp(written.data(), data, size) != 0) std::abort();
  return 0;
}
